#' Predictions from a private fit
#'
#' They cost no budget. An interval holds sampling and privacy noise of the
#' coefficients, not the spread of single outcomes.
#'
#' @param object A fit of [sv_glm()].
#' @param newdata A data frame or the path of a file; the outcome may be
#'   absent.
#' @param type `"response"` for probabilities (or means), `"class"` for
#'   classes.
#' @param interval Level of an interval for the probability or the mean, such
#'   as 0.95; `NULL` for none.
#' @param threshold Probability from which on a row is positive; by default
#'   that of the fit (`cut`), else 0.5.
#' @param site Give all rows the constant of this site; by default that of the
#'   site that a row names, else the average.
#' @param ... Passed to `sv_predict()`.
#' @return `sv_predict()` is a data frame with `prediction`, `probability` and
#'   the ends `low` and `high`; `predict()` is its column for `type`, or a
#'   matrix with `fit`, `lwr` and `upr` if an interval is asked for.
#' @export
sv_predict <- function(object, newdata, interval = NULL, threshold = NULL, site = NULL) {
  if (missing(newdata)) {
    refuse("newdata: is needed: fitted values of the rows themselves are not released")
  }
  if (!inherits(object, "sv_glm") || is.null(object$saved)) {
    refuse("object: must be a fit of sv_glm() with its answers")
  }
  folder <- private_folder()
  on.exit(unlink(folder, recursive = TRUE))
  run <- file.path(folder, "run.json")
  sv_save(object, run)
  lines <- ask_json(c(
    "predict", run, rows_file(newdata, folder, "new.csv"),
    option("interval", interval), option("threshold", threshold), option("site", site)
  ))
  lines_to_frame(lines, names(lines[[1]]))
}

#' @rdname sv_predict
#' @export
predict.sv_glm <- function(object, newdata, type = c("response", "class"), interval = NULL, ...) {
  type <- match.arg(type)
  found <- sv_predict(object, newdata, interval = interval, ...)
  if (type == "class") {
    return(found$prediction)
  }
  shown <- if (is.null(found$probability)) found$prediction else found$probability
  if (is.null(interval)) {
    return(shown)
  }
  cbind(fit = shown, lwr = found$low, upr = found$high)
}

#' Save a fit's answers, and write its report
#'
#' `sv_save()` writes what was released as the file that `sottovoce predict`
#' and `sottovoce report` read. `sv_report()` writes one HTML page to pass on.
#'
#' @param object A fit of [sv_glm()].
#' @param file Path of the file.
#' @param title Title of the page, or `NULL`.
#' @return The path, invisibly.
#' @export
sv_save <- function(object, file) {
  if (is.null(object$saved)) {
    refuse("object: holds no answers to save")
  }
  writeLines(object$saved, file, useBytes = TRUE)
  invisible(file)
}

#' @rdname sv_save
#' @export
sv_report <- function(object, file, title = NULL) {
  folder <- private_folder()
  on.exit(unlink(folder, recursive = TRUE))
  run <- file.path(folder, "run.json")
  sv_save(object, run)
  sottovoce(c("report", run, "--out", normalizePath(file, mustWork = FALSE), option("title", title)))
  invisible(file)
}
