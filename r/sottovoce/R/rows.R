# Rows go to the program in a file that only this user can read, and that is removed afterwards.

private_folder <- function() {
  before <- Sys.umask("077")
  on.exit(Sys.umask(before))
  folder <- tempfile("sottovoce-")
  dir.create(folder, mode = "0700")
  folder
}

# The path of the rows: that of the user's file, or of a private copy of a data frame in `folder`.
#
# All columns are written, in their order: a ledger is tied to the whole table.
rows_file <- function(data, folder, name = "rows.csv") {
  if (is.character(data) && length(data) == 1L) {
    if (!file.exists(data)) {
      refuse("data=%s: there is no such file; give its path, or a data frame", values = data)
    }
    return(normalizePath(data))
  }
  if (!is.data.frame(data)) {
    refuse(
      "data: must be a data frame or the path of a file, not %s; convert it with as.data.frame()",
      values = class(data)[1]
    )
  }
  path <- file.path(folder, name)
  before <- Sys.umask("077")
  on.exit(Sys.umask(before))
  written <- as.data.frame(
    Map(column_text, unclass(data)[names(data)], names(data)),
    stringsAsFactors = FALSE, optional = TRUE
  )
  file <- file(path, "w", encoding = "UTF-8")
  on.exit(close(file), add = TRUE, after = FALSE)
  utils::write.table(
    written, file,
    sep = ",", quote = TRUE, qmethod = "double", na = "", row.names = FALSE, col.names = TRUE
  )
  path
}

column_text <- function(column, name) {
  if (is.factor(column) || is.character(column)) {
    return(enc2utf8(as.character(column)))
  }
  if (inherits(column, "POSIXt")) {
    return(format(column, "%Y-%m-%dT%H:%M:%SZ", tz = "UTC"))
  }
  if (inherits(column, "Date")) {
    return(format(column, "%Y-%m-%d"))
  }
  if (is.logical(column)) {
    return(tolower(as.character(column)))
  }
  if (is.numeric(column) && is.null(dim(column))) {
    texts <- number_text(as.numeric(column))
    texts[is.na(column)] <- NA
    return(texts)
  }
  refuse(
    "data: column %s is of class %s, which a table of text cannot hold; convert or drop it",
    values = list(sQuote(name, FALSE), sQuote(class(column)[1], FALSE))
  )
}

# A call without rows: do.call() puts the data frame itself in the place of its name, and a formula
# brings the environment in which it was written, with all that lies there.
without_rows <- function(call, name) {
  call[[1]] <- as.name(name)
  for (argument in names(call)[-1]) {
    given <- call[[argument]]
    if (inherits(given, "formula")) {
      call[[argument]] <- bare_formula(given)
    } else if (is.list(given) || is.environment(given)) {
      call[[argument]] <- as.name(argument)
    }
  }
  call
}

bare_formula <- function(formula) {
  environment(formula) <- globalenv()
  formula
}

column_names <- function(data) {
  if (is.data.frame(data)) names(data) else NULL
}
