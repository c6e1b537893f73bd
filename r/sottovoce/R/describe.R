#' A descriptive table under differential privacy
#'
#' The Table 1 of a paper: numbers of rows, means, standard deviations,
#' quartiles, counts and shares, overall and by group, from one release. Needs
#' the command `sottovoce describe`.
#'
#' @inheritParams sv_glm
#' @param by Column with declared levels, which are the groups; `NULL` for
#'   none.
#' @param ... More options of `sottovoce describe` by name, such as
#'   `by_site = TRUE`.
#' @return An object of class `sv_describe`: `table` has a row for each
#'   statistic, with `name`, `level`, `group`, `statistic`, `value`, `low` and
#'   `high`; `privacy` is the statement. `as.data.frame()` gives the table.
#' @param x,object The table.
#' @param row.names,optional Ignored.
#' @export
sv_describe <- function(data, schema, by = NULL, epsilon, delta = 1e-5, trust = NULL,
                        sites = NULL, partition = NULL, nodes = NULL, ledger = NULL, run = NULL,
                        seed = NULL, ...) {
  require_epsilon(missing(epsilon))
  answer <- ask_of_rows(
    "describe", data, require_declared(schema, NULL, data), by,
    asked = list(
      epsilon = epsilon, delta = delta, trust = trust, sites = sites, partition = partition,
      nodes = nodes, ledger = ledger, run = run, seed = seed
    ),
    more = list(...)
  )
  structure(
    list(
      call = without_rows(match.call(), "sv_describe"),
      table = lines_to_frame(
        answer$table, c("name", "level", "group", "statistic", "value", "low", "high")
      ),
      groups = as.character(unlist(answer$groups)),
      notes = as.character(unlist(answer$notes)), privacy = answer$privacy,
      answer = answer[setdiff(names(answer), EXACT)]
    ),
    class = "sv_describe"
  )
}

# Asks a command that takes rows, a schema and a column of groups.
ask_of_rows <- function(command, data, schema, by, asked, more) {
  if (!is.null(asked$sites)) {
    schema$site <- asked$sites
  }
  schema$ignore <- list("*")
  check_in_data(schema, data)
  folder <- private_folder()
  on.exit(unlink(folder, recursive = TRUE))
  named <- character()
  for (name in names(more)) {
    named <- c(named, option(gsub("_", "-", name, fixed = TRUE), more[[name]]))
  }
  ask_json(c(
    command, "--data", rows_file(data, folder), "--schema", schema_file(schema, folder),
    option("by", by), privacy_options(asked), site_options(asked, schema), named
  ))
}

#' @rdname sv_describe
#' @export
print.sv_describe <- function(x, ...) {
  table <- x$table
  row <- paste(table$name, table$level, table$statistic, sep = "\r")
  rows <- unique(row)
  groups <- unique(table$group)
  cells <- matrix("", length(rows), length(groups), dimnames = list(NULL, groups))
  cells[cbind(match(row, rows), match(table$group, groups))] <- value_cells(table)
  first <- match(rows, row)
  title <- paste(table$name[first], replace_na(table$level[first]), table$statistic[first])
  rownames(cells) <- gsub(" +", " ", trimws(title))
  print(cells, quote = FALSE, right = TRUE)
  for (note in x$notes) {
    print_wrapped(note)
  }
  print_statement(x$privacy)
  invisible(x)
}

value_cells <- function(table) {
  short <- function(values) trimws(formatC(values, digits = 3, format = "fg", big.mark = ","))
  interval <- sprintf(" (%s to %s)", short(table$low), short(table$high))
  interval[is.na(table$low) | is.na(table$high)] <- ""
  ifelse(is.na(table$value), "refused", paste0(short(table$value), interval))
}

replace_na <- function(texts) {
  ifelse(is.na(texts), "", texts)
}

#' @rdname sv_describe
#' @export
summary.sv_describe <- function(object, ...) {
  object
}

#' @rdname sv_describe
#' @export
as.data.frame.sv_describe <- function(x, row.names = NULL, optional = FALSE, ...) {
  x$table
}
