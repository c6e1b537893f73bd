#' Survival curves under differential privacy
#'
#' Kaplan-Meier curves on public times by group, with bands, and the log-rank
#' test. Needs the command `sottovoce survival`.
#'
#' @inheritParams sv_glm
#' @param formula Times, events and the column of groups, such as
#'   `Surv(days, died) ~ arm`, or `~ 1` for one curve; the schema's label must
#'   be the same [sv_event()].
#' @param ... More options of `sottovoce survival` by name.
#' @return An object of class `sv_survfit`: `curves` has `group`, `time`,
#'   `survival`, `low`, `high` and `at_risk`; `medians` and `logrank`, the test;
#'   `privacy` the statement.
#' @param x The curves.
#' @param row.names,optional Ignored.
#' @export
sv_survfit <- function(formula, data, schema = NULL, epsilon, delta = 1e-5, trust = NULL,
                       sites = NULL, partition = NULL, nodes = NULL, ledger = NULL, run = NULL,
                       seed = NULL, ...) {
  require_epsilon(missing(epsilon))
  schema <- require_declared(schema, formula, data)
  check_family("hazards", schema)
  check_left_side(if (length(formula) == 3L) formula[[2]], schema, "sv_survfit")
  answer <- ask_of_rows(
    "survival", data, schema, group_column(formula, schema),
    asked = list(
      epsilon = epsilon, delta = delta, trust = trust, sites = sites, partition = partition,
      nodes = nodes, ledger = ledger, run = run, seed = seed
    ),
    more = list(...)
  )
  structure(
    list(
      call = without_rows(match.call(), "sv_survfit"),
      curves = lines_to_frame(answer$curves, CURVE),
      medians = if (length(answer$medians)) {
        lines_to_frame(answer$medians, c("group", "median", "low", "high"))
      },
      logrank = answer$logrank, notes = as.character(unlist(answer$notes)),
      privacy = answer$privacy, answer = answer[setdiff(names(answer), EXACT)]
    ),
    class = "sv_survfit"
  )
}

CURVE <- c("group", "time", "survival", "low", "high", "at_risk")

group_column <- function(formula, schema) {
  right <- formula[[length(formula)]]
  if (identical(right, 1)) {
    return(NULL)
  }
  column <- columns_of_terms(right, schema)
  if (length(column) > 1L) {
    refuse("formula: one column makes the groups of curves; name one")
  }
  column
}

#' @rdname sv_survfit
#' @export
print.sv_survfit <- function(x, ...) {
  cat("\nCall:  ", paste(deparse(x$call), collapse = "\n"), "\n\n", sep = "")
  print(x$curves, digits = 3, row.names = FALSE)
  if (!is.null(x$medians)) {
    cat("\nMedian survival, with 95% intervals\n")
    print(x$medians, digits = 3, row.names = FALSE)
  }
  if (!is.null(x$logrank$p)) {
    cat("log-rank: p =", format.pval(as_number(x$logrank$p), digits = 3), "\n")
  }
  for (note in x$notes) {
    print_wrapped(note)
  }
  print_statement(x$privacy)
  invisible(x)
}

#' @rdname sv_survfit
#' @export
plot.sv_survfit <- function(x, ...) {
  groups <- unique(x$curves$group)
  graphics::plot(
    range(0, x$curves$time), c(0, 1),
    type = "n", xlab = "time", ylab = "survival", bty = "n", ...
  )
  for (k in seq_along(groups)) {
    curve <- x$curves[x$curves$group %in% groups[k], ]
    graphics::lines(curve$time, curve$survival, type = "s", col = k, lwd = 2)
    graphics::lines(curve$time, curve$low, type = "s", col = k, lty = 3)
    graphics::lines(curve$time, curve$high, type = "s", col = k, lty = 3)
  }
  if (length(groups) > 1L) {
    graphics::legend("bottomleft", legend = groups, col = seq_along(groups), lwd = 2, bty = "n")
  }
  invisible(x)
}

#' @rdname sv_survfit
#' @export
as.data.frame.sv_survfit <- function(x, row.names = NULL, optional = FALSE, ...) {
  x$curves
}

#' Hazard ratios under differential privacy
#'
#' Hazards in the public intervals of the schema's [sv_event()], with hazard
#' ratios and intervals. Cox's partial likelihood itself has no private form
#' here; with intervals that are short against the times the ratios agree.
#' Needs a sottovoce whose `train --inference` takes labels of events.
#'
#' @inheritParams sv_glm
#' @param formula Such as `Surv(days, died) ~ age + arm`; `Surv` need not be
#'   loaded.
#' @param ... As for [sv_glm()]: settings of `sottovoce train --set`.
#' @return A fit with the methods of [sv_glm()].
#' @export
sv_cox <- function(formula, data, schema = NULL, epsilon, delta = 1e-5, trust = NULL,
                   sites = NULL, partition = NULL, nodes = NULL, ledger = NULL, run = NULL,
                   seed = NULL, save = NULL, ...) {
  require_epsilon(missing(epsilon))
  refuse_not_here(match.call(expand.dots = FALSE)$...)
  fit <- function() {
    fit_by_formula(
      formula, data, schema, "hazards",
      asked = list(
        epsilon = epsilon, delta = delta, trust = trust, sites = sites, partition = partition,
        nodes = nodes, ledger = ledger, run = run, seed = seed, save = save
      ),
      settings = list(...), call = call
    )
  }
  call <- match.call()
  tryCatch(fit(), error = function(e) {
    if (grepl("^label: must have column", conditionMessage(e))) {
      refuse(
        "the installed sottovoce (%s) fits no labels of events by `train --inference`: update ",
        "the program",
        values = sv_version()
      )
    }
    stop(e)
  })
}
