#' Declare the public facts about a table
#'
#' A schema says which columns there are and which values they can have.
#' Noise is sized by these facts and everybody may read them, so they come
#' from a protocol, a code book or a law, and **never from the rows**: a bound
#' that is computed from rows tells something about them, and no epsilon pays
#' for it. An expression such as `max(stays$age)` is therefore refused.
#'
#' @param label What the model is about: [sv_classes()], [sv_target()],
#'   [sv_count()] or [sv_event()].
#' @param ... Columns by name: [sv_number()], [sv_levels()], [sv_bins()] or
#'   [sv_date()].
#' @param site Name of the column that says which site holds a row, or `NULL`.
#' @param person Name of the column that identifies a person with several
#'   rows, or `NULL`.
#' @param scale Rows are divided by this number, which should be the norm of a
#'   typical row; longer rows count for less. `"auto"` takes what
#'   [sv_check()] proposes from the schema alone; `NULL` divides by the
#'   largest possible norm.
#' @param na Texts that mark a missing value, besides `NA`.
#' @param columns A named list of more columns, for names such as `label`.
#' @return An object of class `sv_schema`.
#' @seealso [sv_write_schema()] for the file that all sites use.
#' @examples
#' sv_schema(
#'   label = sv_classes("readmitted", positive = "yes", negative = "no"),
#'   age = sv_number(18, 100, typical = c(45, 85)),
#'   ward = sv_levels("medicine", "surgery", "geriatrics"),
#'   site = "hospital"
#' )
#' @export
sv_schema <- function(label = NULL, ..., site = NULL, person = NULL, scale = NULL, na = NULL,
                      columns = list()) {
  if (is.data.frame(label)) {
    refuse_bounds_of_rows(label)
  }
  given <- list(...)
  for (one in given) {
    if (is.data.frame(one)) {
      refuse_bounds_of_rows(one)
    }
  }
  columns <- c(given, columns)
  if (!is.null(label) && !inherits(label, "sv_label")) {
    refuse("label: must be one of sv_classes(), sv_target(), sv_count() and sv_event()")
  }
  check_columns(columns)
  entries <- list(intercept = TRUE, ignore = list("*"))
  entries$na <- if (!is.null(na)) as.list(na)
  entries$site <- site
  entries$scale <- scale
  entries$person <- person
  offset <- attr(label, "offset")
  entries$label <- if (!is.null(label)) unclass_entry(label)
  entries$offset <- if (!is.null(offset)) offset
  entries$columns <- lapply(columns, unclass_entry)
  structure(entries, class = "sv_schema")
}

unclass_entry <- function(entry) {
  entry <- unclass(entry)
  attr(entry, "offset") <- NULL
  entry
}

check_columns <- function(columns) {
  if (!length(columns)) {
    refuse("columns: a schema needs at least one, such as age = sv_number(18, 100)")
  }
  if (is.null(names(columns)) || !all(nzchar(names(columns)))) {
    refuse("columns: each needs a name, such as age = sv_number(18, 100)")
  }
  if (anyDuplicated(names(columns))) {
    refuse(
      "columns: %s is declared twice; declare it once",
      values = sQuote(names(columns)[anyDuplicated(names(columns))], FALSE)
    )
  }
  for (name in names(columns)) {
    if (!inherits(columns[[name]], "sv_column")) {
      refuse(
        "%s: must be one of sv_number(), sv_levels(), sv_bins() and sv_date()",
        values = name
      )
    }
  }
}

refuse_bounds_of_rows <- function(data) {
  refuse(
    "schema: bounds and levels are public facts and are never read off rows; declare %s, ",
    "or start from sv_draft()",
    values = paste(utils::head(names(data), 5), collapse = ", ")
  )
}

#' Columns of a schema
#'
#' @param lo,hi Bounds that no value can pass; values beyond are clipped. For
#'   a date, days as text, such as `"2023-01-01"`.
#' @param typical The range of most values, two numbers. Only accuracy depends
#'   on it.
#' @param missing A value that stands for a missing one; without it a missing
#'   value is an error.
#' @param transform `"log1p"`, or `NULL`.
#' @param indicator Whether a missing value gets a coefficient of its own.
#' @param weight Norm of the column's share of a row.
#' @param ... The levels, in order; a named vector such as
#'   `basic = c("basic", "Basic")` gathers spellings.
#' @param base The reference level; the first by default.
#' @param other Whether all other values are one more level.
#' @param edges Increasing edges of the bins.
#' @param epoch The day from which days are counted, as text.
#' @param unit The unit of a date: `"days"`, `"years"`, and others.
#' @return A declaration for [sv_schema()].
#' @examples
#' sv_number(110, 165, typical = c(130, 146), missing = 138)
#' sv_levels("female", "male", base = "male")
#' @name sv_columns
NULL

#' @rdname sv_columns
#' @export
sv_number <- function(lo, hi, typical = NULL, missing = NULL, transform = NULL,
                      indicator = NULL, weight = NULL) {
  require_public(substitute(lo), "lo")
  require_public(substitute(hi), "hi")
  require_public(substitute(typical), "typical")
  require_public(substitute(missing), "missing")
  require_bounds(lo, hi)
  declare_column(
    kind = "number", lo = lo, hi = hi, typical = list_or_null(typical), missing = missing,
    transform = transform, indicator = indicator, weight = weight
  )
}

#' @rdname sv_columns
#' @export
sv_levels <- function(..., base = NULL, other = NULL, missing = NULL, weight = NULL) {
  for (one in as.list(substitute(list(...)))[-1]) {
    require_public(one, "levels")
  }
  given <- list(...)
  if (!length(given)) {
    refuse("levels: must be declared, such as sv_levels(\"female\", \"male\")")
  }
  spellings <- names(given)
  if (is.null(spellings)) {
    values <- as.list(as.character(unlist(given)))
  } else {
    spellings[!nzchar(spellings)] <- as.character(unlist(given[!nzchar(spellings)]))
    values <- lapply(given, function(one) as.list(as.character(one)))
    names(values) <- spellings
  }
  declare_column(
    kind = "category", values = values, base = base, other = other, missing = missing,
    weight = weight
  )
}

#' @rdname sv_columns
#' @export
sv_bins <- function(edges, base = NULL, missing = NULL, weight = NULL) {
  require_public(substitute(edges), "edges")
  declare_column(
    kind = "bins", edges = as.list(edges), base = base, missing = missing, weight = weight
  )
}

#' @rdname sv_columns
#' @export
sv_date <- function(lo, hi, epoch = lo, unit = "days", typical = NULL, missing = NULL,
                    weight = NULL) {
  require_public(substitute(lo), "lo")
  require_public(substitute(hi), "hi")
  day <- function(value) if (is.null(value)) NULL else format(value)
  declare_column(
    kind = "date", epoch = day(epoch), unit = unit, lo = day(lo), hi = day(hi),
    typical = list_or_null(day(typical)), missing = day(missing), weight = weight
  )
}

#' What a model is about
#'
#' @param column Name of the column.
#' @param positive The value that counts as the event.
#' @param negative The other value; without it, all other values are negative.
#' @param lo,hi Public bounds of a number, or of a time; values beyond are
#'   clipped.
#' @param unit Unit of a number, as text.
#' @param offset For counts: the time in which events were counted, by
#'   `sv_time_seen()`.
#' @param event Name of the column that says whether the event came: 1 or 0,
#'   `TRUE` or `FALSE`.
#' @param time Name of the column of times, of the event or of the end of
#'   observation.
#' @param cuts Increasing public times that end the intervals of the hazard.
#' @param event_code The value that means the event, if it is not 1.
#' @return A declaration for [sv_schema()].
#' @examples
#' sv_classes("readmitted", positive = "yes", negative = "no")
#' sv_target("stay", 0, 60, unit = "days")
#' sv_event("died", "days", cuts = c(30, 90, 365))
#' @name sv_labels
NULL

#' @rdname sv_labels
#' @export
sv_classes <- function(column, positive, negative = NULL) {
  if (missing(positive)) {
    refuse("positive: must be declared, such as sv_classes(\"died\", positive = \"yes\")")
  }
  declare_label(
    column = column, positive = declared_value(positive), negative = declared_value(negative)
  )
}

#' @rdname sv_labels
#' @export
sv_target <- function(column, lo, hi, unit = NULL) {
  require_public(substitute(lo), "lo")
  require_public(substitute(hi), "hi")
  require_bounds(lo, hi)
  declare_label(column = column, lo = lo, hi = hi, unit = unit)
}

#' @rdname sv_labels
#' @export
sv_count <- function(column, hi, offset = NULL) {
  require_public(substitute(hi), "hi")
  require_bounds(0, hi)
  structure(declare_label(column = column, lo = 0, hi = hi, family = "poisson"), offset = offset)
}

#' @rdname sv_labels
#' @export
sv_time_seen <- function(column, lo, hi) {
  require_public(substitute(lo), "lo")
  require_public(substitute(hi), "hi")
  require_bounds(lo, hi)
  list(column = column, lo = lo, hi = hi)
}

#' @rdname sv_labels
#' @export
sv_event <- function(event, time, cuts, event_code = NULL) {
  require_public(substitute(cuts), "cuts")
  if (missing(cuts)) {
    refuse("cuts: must be declared, such as cuts = c(30, 90, 365)")
  }
  declare_label(event = event, time = time, cuts = as.list(cuts), event_code = event_code)
}

declared_value <- function(value) {
  if (is.null(value)) {
    return(NULL)
  }
  if (is.logical(value)) tolower(as.character(value)) else number_text(value)
}

drop_null <- function(entries) {
  entries[!vapply(entries, is.null, logical(1))]
}

declare_column <- function(...) {
  structure(drop_null(list(...)), class = "sv_column")
}

declare_label <- function(...) {
  structure(drop_null(list(...)), class = "sv_label")
}

list_or_null <- function(values) {
  if (is.null(values)) NULL else as.list(values)
}

require_bounds <- function(lo, hi) {
  if (missing(lo) || missing(hi)) {
    refuse("lo, hi: must be declared, from a code book or a protocol and never from the rows")
  }
  if (!is.numeric(lo) || !is.numeric(hi) || length(lo) != 1L || length(hi) != 1L || !(lo < hi)) {
    refuse("lo, hi: must be two numbers with lo < hi; correct them")
  }
}

# Functions that summarise rows: with one of these, an expression was computed from data.
SUMMARIES <- c(
  "min", "max", "range", "quantile", "fivenum", "mean", "median", "sd", "levels", "unique",
  "table", "pretty", "summary", "boxplot.stats", "cut", "sort"
)

require_public <- function(expression, name) {
  called <- setdiff(all.names(expression), all.vars(expression))
  reads <- intersect(called, SUMMARIES)
  if (length(reads) && length(all.vars(expression))) {
    refuse(
      "%s: `%s` is computed from rows, which no epsilon pays for; write a public fact, or ask ",
      "for one with `sottovoce schema survey`",
      values = list(name, paste(deparse(expression), collapse = " "))
    )
  }
}

#' Draft a schema from the names of columns
#'
#' Prints the R code of a schema in which every public fact is left to fill in.
#' Only the names of the columns are used, and no value.
#'
#' @param data A data frame, or names of columns.
#' @param label,site Names of the columns of the outcome and of the site.
#' @return The code as text, invisibly.
#' @examples
#' sv_draft(c("age", "ward", "readmitted", "hospital"), "readmitted", "hospital")
#' @export
sv_draft <- function(data, label = NULL, site = NULL) {
  all_columns <- if (is.data.frame(data)) names(data) else as.character(data)
  for (name in c(label, site)) {
    if (!name %in% all_columns) {
      refuse("%s: there is no such column; give one of the names of data", values = name)
    }
  }
  lines <- sprintf(
    "  %s = sv_number(lo = , hi = ),  # or sv_levels(), sv_bins(), sv_date(); or leave it out",
    vapply(setdiff(all_columns, c(label, site)), backquoted, "")
  )
  if (!is.null(label)) {
    lines <- c(
      sprintf("  label = sv_classes(\"%s\", positive = ),  # or sv_target(), sv_event()", label),
      lines
    )
  }
  last <- if (is.null(site)) "  scale = \"auto\"" else
    sprintf("  site = \"%s\", scale = \"auto\"", site)
  code <- paste(c("sv_schema(", lines, last, ")"), collapse = "\n")
  cat(code, "\n", sep = "")
  invisible(code)
}

backquoted <- function(name) {
  deparse(as.name(name), backtick = TRUE)
}

#' Read and write the file of a schema
#'
#' The file is the TOML that the command line and all sites use.
#'
#' @param file Path of the file.
#' @param schema An [sv_schema()].
#' @return `sv_read_schema()` is an [sv_schema()]; `sv_write_schema()` returns
#'   the text invisibly.
#' @examples
#' file <- tempfile(fileext = ".toml")
#' sv_write_schema(sv_schema(age = sv_number(18, 100)), file)
#' readLines(file)
#' @export
sv_write_schema <- function(schema, file) {
  require_schema(schema)
  text <- schema_toml(resolve_scale(schema))
  writeLines(enc2utf8(text), file, useBytes = TRUE)
  invisible(text)
}

#' @rdname sv_write_schema
#' @export
sv_read_schema <- function(file) {
  if (!file.exists(file)) {
    refuse("file=%s: there is no such file; give the path of a schema", values = file)
  }
  checked <- ask_json(c("schema", "check", normalizePath(file)), accept = c(0L, 2L))
  if (length(checked$mistakes)) {
    refuse("%s", values = paste(unlist(checked$mistakes), collapse = "\n"))
  }
  if (is.null(checked$declared)) {
    refuse(
      "the installed sottovoce (%s) does not show schemas as JSON: update the program",
      values = sv_version()
    )
  }
  entries <- checked$declared
  entries$name <- NULL
  structure(entries, class = "sv_schema")
}

#' Check a schema, and a table against it
#'
#' Without data only the schema is read: the advice on `scale` may be followed
#' freely. With data the counts are exact and have no noise: they are for the
#' holder of the rows only, and a schema that is changed because of them is no
#' public fact.
#'
#' @param schema An [sv_schema()], or the path of its file.
#' @param data A data frame or the path of a file; `NULL` for the schema alone.
#' @return An object of class `sv_check`, with `fine`, `mistakes`, `says` and
#'   `counts`.
#' @examples
#' if (sv_available()) {
#'   sv_check(sv_schema(age = sv_number(18, 100)))
#' }
#' @export
sv_check <- function(schema, data = NULL) {
  folder <- private_folder()
  on.exit(unlink(folder, recursive = TRUE))
  file <- schema_file(as_schema(schema), folder)
  arguments <- c("schema", "check", file)
  if (!is.null(data)) {
    arguments <- c(arguments, rows_file(data, folder))
  }
  checked <- ask_json(arguments, accept = c(0L, 2L))
  counts <- checked$table$counts
  structure(
    list(
      fine = isTRUE(checked$fine),
      mistakes = as.character(unlist(checked$mistakes)),
      refused = as.character(unlist(checked$table$refused)),
      says = as.character(unlist(checked$expected$says)),
      scale = checked$expected$change$scale,
      counts = if (!is.null(counts)) {
        lines_to_frame(counts, c("column", "rows", "share", "what"))
      }
    ),
    class = "sv_check"
  )
}

#' @export
print.sv_check <- function(x, ...) {
  for (line in c(x$mistakes, x$refused)) {
    print_wrapped(line)
  }
  for (line in x$says) {
    print_wrapped(line)
  }
  if (!is.null(x$counts)) {
    print(x$counts, row.names = FALSE, right = FALSE)
    print_wrapped("Exact counts without noise, not covered by epsilon: for the holder only.")
  }
  if (x$fine && !length(x$says)) {
    cat("Fine.\n")
  }
  invisible(x)
}

#' @export
print.sv_schema <- function(x, ...) {
  cat(schema_toml(x), "\n", sep = "")
  invisible(x)
}

require_schema <- function(schema) {
  if (!inherits(schema, "sv_schema")) {
    refuse("schema: must come from sv_schema() or sv_read_schema(), or be the path of a file")
  }
}

as_schema <- function(schema) {
  if (is.character(schema) && length(schema) == 1L) {
    return(sv_read_schema(schema))
  }
  require_schema(schema)
  schema
}

# Puts the number that the program proposes in the place of scale = "auto".
resolve_scale <- function(schema) {
  if (!identical(schema$scale, "auto")) {
    return(schema)
  }
  schema$scale <- NULL
  folder <- private_folder()
  on.exit(unlink(folder, recursive = TRUE))
  checked <- ask_json(
    c("schema", "check", schema_file(schema, folder)),
    accept = c(0L, 2L)
  )
  if (length(checked$mistakes)) {
    refuse("%s", values = paste(unlist(checked$mistakes), collapse = "\n"))
  }
  schema$scale <- checked$expected$change$scale
  schema
}

schema_file <- function(schema, folder) {
  path <- file.path(folder, "schema.toml")
  sv_write_schema(schema, path)
  path
}

schema_toml <- function(schema) {
  entries <- unclass(schema)
  columns <- entries$columns
  entries$columns <- NULL
  lines <- toml_lines(entries)
  for (name in names(columns)) {
    column <- columns[[name]]
    if (is.list(column$values) && all_own_names(column$values)) {
      column$values <- as.list(names(column$values))
    }
    lines <- c(lines, "", sprintf("[columns.%s]", toml_key(name)), toml_lines(column))
  }
  paste(lines, collapse = "\n")
}

# Groups of one spelling each, of their own name, are written as a plain list.
all_own_names <- function(values) {
  !is.null(names(values)) &&
    all(mapply(function(name, one) identical(as.character(unlist(one)), name),
      names(values), values))
}

toml_lines <- function(entries) {
  vapply(
    names(entries),
    function(key) sprintf("%s = %s", toml_key(key), toml_value(entries[[key]])),
    ""
  )
}

toml_key <- function(name) {
  if (grepl("^[A-Za-z0-9_-]+$", name)) name else toml_text(name)
}

toml_value <- function(value) {
  if (is.list(value) && !is.null(names(value))) {
    return(sprintf("{ %s }", paste(toml_lines(value), collapse = ", ")))
  }
  if (is.list(value)) {
    return(sprintf("[%s]", paste(vapply(value, toml_value, ""), collapse = ", ")))
  }
  if (length(value) != 1L || is.na(value)) {
    refuse("schema: every entry must be one value that is not missing; correct it")
  }
  if (is.logical(value)) {
    return(tolower(as.character(value)))
  }
  if (is.numeric(value)) number_text(value) else toml_text(value)
}

toml_text <- function(text) {
  as.character(jsonlite::toJSON(enc2utf8(text), auto_unbox = TRUE))
}
