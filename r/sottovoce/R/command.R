#' Is the program sottovoce installed?
#'
#' All numbers come from the command line of sottovoce, a program of Python.
#' It is looked for in this order: `options(sottovoce.command = )`, which may
#' be a path or a command with arguments such as `c("python3", "-m",
#' "sottovoce")`; `sottovoce` on the `PATH`; and the module of `python3` or
#' `python`.
#'
#' @return `sv_available()` is `TRUE` or `FALSE`; `sv_version()` is the
#'   version of the program, as text.
#' @examples
#' sv_available()
#' @export
sv_available <- function() {
  !inherits(try(find_command(), silent = TRUE), "try-error")
}

#' @rdname sv_available
#' @export
sv_version <- function() {
  said <- run_program(find_command(), "--version")
  sub("^.*version ", "", said$stdout[1])
}

found <- new.env(parent = emptyenv())

# The command with its first arguments, such as c("python3", "-m", "sottovoce").
find_command <- function() {
  given <- getOption("sottovoce.command")
  if (!is.null(given)) {
    if (!is.character(given) || !length(given) || !answers_version(given)) {
      refuse(
        "option sottovoce.command=%s: is not the program sottovoce; set it to its path, ",
        "or to c(\"python3\", \"-m\", \"sottovoce\")",
        values = paste(given, collapse = " ")
      )
    }
    return(given)
  }
  if (is.null(found$command)) {
    found$command <- search_command()
  }
  found$command
}

search_command <- function() {
  on_path <- Sys.which("sottovoce")
  if (nzchar(on_path) && answers_version(unname(on_path))) {
    return(unname(on_path))
  }
  for (python in Sys.which(c("python3", "python"))) {
    module <- c(python, "-m", "sottovoce")
    if (nzchar(python) && answers_version(module)) {
      return(module)
    }
  }
  refuse(
    "the program sottovoce was not found: install it with `pip install` as its README says ",
    "(Python 3.11 or newer), then give its path by options(sottovoce.command = \"PATH\")"
  )
}

answers_version <- function(command) {
  said <- tryCatch(run_program(command, "--version"), error = function(e) NULL)
  !is.null(said) && said$status == 0 && any(grepl("sottovoce", said$stdout))
}

# Runs a program without a shell where processx is installed.
run_program <- function(command, arguments) {
  arguments <- c(command[-1], arguments)
  if (requireNamespace("processx", quietly = TRUE)) {
    # Text of other programs is UTF-8 here, whatever the locale is.
    ran <- processx::run(
      command[1], arguments,
      error_on_status = FALSE, encoding = "UTF-8",
      env = c("current", PYTHONIOENCODING = "utf-8")
    )
    return(list(
      status = ran$status,
      stdout = split_lines(ran$stdout),
      stderr = split_lines(ran$stderr)
    ))
  }
  run_by_system(command[1], arguments)
}

run_by_system <- function(program, arguments) {
  out <- tempfile("sottovoce-out")
  err <- tempfile("sottovoce-err")
  before <- Sys.umask("077")
  on.exit({
    unlink(c(out, err))
    Sys.umask(before)
  })
  status <- suppressWarnings(system2(
    program, shQuote(arguments),
    stdout = out, stderr = err, env = "PYTHONIOENCODING=utf-8"
  ))
  list(
    status = status,
    stdout = readLines(out, warn = FALSE, encoding = "UTF-8"),
    stderr = readLines(err, warn = FALSE, encoding = "UTF-8")
  )
}

split_lines <- function(text) {
  strsplit(text, "\r?\n")[[1]]
}

# Runs sottovoce; its notes become messages, and its errors errors of R.
sottovoce <- function(arguments, accept = 0L) {
  ran <- run_program(find_command(), arguments)
  says <- ran$stderr[nzchar(trimws(ran$stderr))]
  if (!ran$status %in% accept) {
    refuse_failed(arguments, says, ran$status)
  }
  for (line in says) {
    message(line)
  }
  paste(ran$stdout, collapse = "\n")
}

refuse_failed <- function(arguments, says, status) {
  if (any(grepl("No such command", says, fixed = TRUE))) {
    refuse(
      "the installed sottovoce (%s) has no command %s: update the program",
      values = list(sv_version(), sQuote(arguments[1], FALSE))
    )
  }
  if (!length(says)) {
    says <- sprintf("sottovoce %s ended with status %d", arguments[1], status)
  }
  refuse("%s", values = sub("^[Ee]rror: ", "", paste(says, collapse = "\n")))
}

ask_json <- function(arguments, accept = 0L) {
  text <- sottovoce(c(arguments, "--json"), accept)
  jsonlite::fromJSON(text, simplifyVector = FALSE)
}

# An error of one line, without the call of a function that the user did not type.
refuse <- function(..., values = list()) {
  stop(do.call(sprintf, c(list(paste0(...)), as.list(values))), call. = FALSE)
}

option <- function(name, value) {
  if (is.null(value)) {
    return(character())
  }
  if (isTRUE(value)) {
    return(paste0("--", name))
  }
  c(paste0("--", name), paste(number_text(value), collapse = ","))
}

# Numbers in the fewest digits that give the same number.
number_text <- function(values) {
  if (!is.numeric(values)) {
    return(as.character(values))
  }
  texts <- sprintf("%.15g", values)
  finite <- is.finite(values)
  short <- finite
  short[finite] <- as.numeric(texts[finite]) != values[finite]
  texts[short] <- sprintf("%.17g", values[short])
  texts[values %in% Inf] <- "inf"
  texts[values %in% -Inf] <- "-inf"
  texts
}
