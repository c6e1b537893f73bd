#' The lifetime budget of a table
#'
#' A ledger is a file beside the rows. Every release is charged there before
#' its noise is drawn, and nothing is released beyond its budget. The first
#' run ties it to the table: keep the order of rows and columns.
#'
#' @param file Path of the ledger.
#' @param epsilon Lifetime budget of each row, for a new ledger; `NULL` opens
#'   one that exists.
#' @param delta Delta of the guarantee, for a new ledger.
#' @param accountant `"pure"`, `"zcdp"` or `"rdp"`; by default `"rdp"`, and
#'   `"pure"` without a delta.
#' @param nodes Number of sites whose rows the table holds.
#' @param x An `sv_budget`.
#' @param ... Ignored.
#' @return An object of class `sv_budget` for `ledger =` of [sv_glm()].
#'   Printing it reads the file: what was spent, and by which runs, which
#'   `as.data.frame()` gives as a table.
#' @examples
#' if (sv_available()) {
#'   budget <- sv_budget(tempfile(fileext = ".ledger"), epsilon = 3, nodes = 4)
#'   budget
#' }
#' @export
sv_budget <- function(file, epsilon = NULL, delta = 1e-5, accountant = NULL, nodes = 1) {
  if (is.null(epsilon) && !file.exists(file)) {
    refuse("file=%s: there is no such ledger; give epsilon to make one", values = file)
  }
  if (!is.null(epsilon)) {
    if (file.exists(file)) {
      refuse(
        "file=%s: exists, and the budget of a ledger never changes; leave epsilon out to open it",
        values = file
      )
    }
    message(sottovoce(c(
      "ledger", "init", file, option("epsilon", epsilon), option("delta", delta),
      option("accountant", accountant), option("nodes", nodes)
    )))
  }
  structure(list(file = normalizePath(file)), class = "sv_budget")
}

budget_state <- function(budget) {
  ask_json(c("ledger", "show", budget$file))
}

#' @rdname sv_budget
#' @export
print.sv_budget <- function(x, ...) {
  state <- budget_state(x)
  spent <- as.numeric(unlist(state$spent))
  budget <- as.numeric(unlist(state$epsilon))
  cat("Ledger ", x$file, "\n", sep = "")
  delta <- if (is.null(state$delta)) "" else sprintf(", delta = %s", format(state$delta))
  cat(sprintf("site %d: spent epsilon %s of %s%s\n", seq_along(spent),
    format(spent, digits = 4), format(budget, digits = 4), delta), sep = "")
  runs <- as.data.frame(x)
  if (nrow(runs)) {
    print(runs, row.names = FALSE)
  }
  for (caution in unlist(state$cautions)) {
    print_wrapped(caution)
  }
  print_wrapped("Spent is for life: no row of the table loses more to all of these runs together.")
  invisible(x)
}

#' @rdname sv_budget
#' @param row.names,optional Ignored.
#' @export
as.data.frame.sv_budget <- function(x, row.names = NULL, optional = FALSE, ...) {
  runs <- budget_state(x)$runs
  fields <- c("run", "state", "since", "planned", "charged")
  if (!length(runs)) {
    return(as.data.frame(stats::setNames(rep(list(character()), length(fields)), fields)))
  }
  lines_to_frame(runs, fields)
}

ledger_path <- function(ledger) {
  if (is.null(ledger)) {
    return(NULL)
  }
  if (inherits(ledger, "sv_budget")) ledger$file else ledger
}

# The file in which the program stored the result of a run before it was shown.
stored_beside <- function(ledger, run) {
  runs <- ask_json(c("ledger", "show", ledger))$runs
  for (one in runs) {
    if (identical(one$run, run) && length(one$results)) {
      return(one$results[[length(one$results)]])
    }
  }
  NULL
}
