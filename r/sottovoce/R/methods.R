#' Methods of private fits
#'
#' What follows from a fit at no further cost. Printing always ends with the
#' privacy statement.
#'
#' @param x,object A fit of [sv_glm()] or [sv_cox()].
#' @param digits Significant digits.
#' @param parm Names or numbers of coefficients; all by default.
#' @param level Confidence level. At levels other than 0.95 intervals are
#'   symmetric; lines whose interval is not get `NA`, with a warning.
#' @param ... Ignored.
#' @return `coef()` is a named vector with `NA` for refused coefficients,
#'   `vcov()` their covariance, `confint()` a matrix. `nobs()` is `NA` unless
#'   the privacy statement says that row counts are public. `residuals()`,
#'   `fitted()` and `logLik()` are refused: they would tell about single rows.
#' @name sv_methods
#' @importFrom stats coef confint fitted formula logLik nobs predict residuals vcov
NULL

print_wrapped <- function(text, indent = "") {
  for (line in strsplit(text, "\n", fixed = TRUE)[[1]]) {
    cat(strwrap(line, prefix = indent, exdent = 2), sep = "\n")
  }
}

print_statement <- function(privacy) {
  cat("\nPrivacy\n")
  print_wrapped(privacy$says)
  spent <- privacy$ledger
  if (!is.null(spent)) {
    cat(sprintf(
      "Ledger: run %s; spent %s of %s\n", sQuote(spent$run, FALSE),
      format(max(as.numeric(unlist(spent$spent))), digits = 4),
      format(min(as.numeric(unlist(spent$budget))), digits = 4)
    ))
  }
}

# Why lines are not shown: one sentence for all lines of a reason.
print_refused <- function(table) {
  refused <- table[!is.na(table$why), ]
  for (why in unique(refused$why)) {
    print_wrapped(sprintf(
      "Not shown: %s: %s", paste(refused$term[refused$why == why], collapse = ", "), why
    ))
  }
}

#' @rdname sv_methods
#' @export
print.sv_glm <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  cat("\nCall:  ", paste(deparse(x$call), collapse = "\n"), "\n\nCoefficients:\n", sep = "")
  print.default(format(x$coefficients, digits = digits), print.gap = 2L, quote = FALSE)
  print_refused(x$table)
  print_statement(x$privacy)
  invisible(x)
}

#' @rdname sv_methods
#' @export
summary.sv_glm <- function(object, ...) {
  table <- object$table
  coefficients <- cbind(
    Estimate = table$estimate, `Std. Error` = table$std.error,
    `z value` = table$estimate / table$std.error, `Pr(>|z|)` = table$p.value
  )
  rownames(coefficients) <- table$term
  structure(
    c(
      object[c("call", "family", "table", "needs", "evaluation", "notes", "privacy", "nobs")],
      list(coefficients = coefficients)
    ),
    class = "summary.sv_glm"
  )
}

#' @rdname sv_methods
#' @export
print.summary.sv_glm <- function(x, digits = max(3L, getOption("digits") - 3L), ...) {
  cat("\nCall:  ", paste(deparse(x$call), collapse = "\n"), "\n\n", sep = "")
  there <- is.na(x$table$why)
  if (any(there)) {
    stats::printCoefmat(x$coefficients[there, , drop = FALSE], digits = digits, na.print = "-",
      signif.legend = FALSE
    )
    cat("\n95% intervals, and noise: the share of the variance that comes from privacy noise\n")
    print(interval_table(x$table)[there, , drop = FALSE], quote = FALSE, right = TRUE)
  }
  print_refused(x$table)
  for (note in x$notes) {
    print_wrapped(note)
  }
  if (!is.null(x$evaluation)) {
    print_evaluation(x$evaluation)
  }
  print_statement(x$privacy)
  invisible(x)
}

interval_table <- function(table) {
  short <- function(values) {
    ifelse(is.na(values), "-", trimws(formatC(values, digits = 3, format = "fg", flag = "#")))
  }
  # A constant is no ratio of anything.
  constant <- table$column == CONSTANT
  shown <- cbind(
    low = short(table$conf.low), high = short(table$conf.high),
    noise = ifelse(is.na(table$noise), "-", sprintf("%.0f%%", 100 * table$noise))
  )
  ratio <- attr(table, "ratio")
  if (!is.null(ratio)) {
    ratios <- cbind(
      ifelse(constant, "", short(table$ratio)),
      ifelse(constant, "", short(table$ratio.low)),
      ifelse(constant, "", short(table$ratio.high))
    )
    colnames(ratios) <- c(ratio, "low", "high")
    shown <- cbind(shown, ratios)
  }
  rownames(shown) <- paste0(table$term, ifelse(table$strained, "?", ""))
  shown
}

print_evaluation <- function(found) {
  cat("\nHeld-out rows\n")
  shown <- list()
  for (name in names(found)) {
    one <- found[[name]]
    if (is.list(one) && all(c("value", "low", "high") %in% names(one))) {
      shown[[sub("_interval$", "", name)]] <- one
    }
  }
  shown <- c(shown, found$rates)
  texts <- vapply(shown, function(one) {
    if (is.null(one$value)) return("refused")
    sprintf("%.4f (%.3f to %.3f)", one$value, as_number(one$low), as_number(one$high))
  }, "")
  width <- max(nchar(names(texts)))
  cat(sprintf("  %s  %s\n", formatC(gsub("_", " ", names(texts)), width = -width), texts), sep = "")
  print_wrapped(sprintf(
    "At %s or more; epsilon of the held-out rows: %s",
    format(as_number(found$threshold)), format(as_number(found$privacy$epsilon), digits = 3)
  ))
}

#' @rdname sv_methods
#' @export
coef.sv_glm <- function(object, ...) {
  object$coefficients
}

#' @rdname sv_methods
#' @export
vcov.sv_glm <- function(object, ...) {
  object$vcov
}

#' @rdname sv_methods
#' @export
confint.sv_glm <- function(object, parm, level = 0.95, ...) {
  if (!is.numeric(level) || length(level) != 1L || is.na(level) || level <= 0 || level >= 1) {
    refuse("level: must be one number between 0 and 1")
  }
  table <- object$table
  if (missing(parm)) {
    parm <- table$term
  } else if (is.numeric(parm)) {
    parm <- table$term[parm]
  }
  unknown <- setdiff(parm, table$term)
  if (length(unknown)) {
    refuse("parm=%s: is no coefficient; names are in names(coef(fit))", values = unknown[1])
  }
  ends <- interval_ends(table, level)[match(parm, table$term), , drop = FALSE]
  rownames(ends) <- parm
  ends
}

interval_ends <- function(table, level) {
  ends <- cbind(table$conf.low, table$conf.high)
  if (level != 0.95) {
    half <- stats::qnorm((1 + level) / 2) * table$std.error
    even <- abs(ends[, 1] + ends[, 2] - 2 * table$estimate) < 1e-6 * table$std.error
    other <- which(!is.na(table$estimate) & !(even %in% TRUE))
    if (length(other)) {
      warning(
        "intervals of ", paste(table$term[other], collapse = ", "),
        " are not symmetric and known at level 0.95 alone", call. = FALSE
      )
    }
    ends <- cbind(table$estimate - half, table$estimate + half)
    ends[!(even %in% TRUE), ] <- NA
  }
  tails <- c((1 - level) / 2, (1 + level) / 2)
  colnames(ends) <- paste(format(100 * tails, trim = TRUE, digits = 3), "%")
  ends
}

#' @rdname sv_methods
#' @export
nobs.sv_glm <- function(object, ...) {
  object$nobs
}

#' @rdname sv_methods
#' @export
formula.sv_glm <- function(x, ...) {
  x$formula
}

#' @rdname sv_methods
#' @export
residuals.sv_glm <- function(object, ...) {
  refuse("residuals: are about single rows and are not released; ask for evaluation = EPSILON")
}

#' @rdname sv_methods
#' @export
fitted.sv_glm <- function(object, ...) {
  refuse("fitted: values of the rows are not released; use predict(fit, newdata)")
}

#' @rdname sv_methods
#' @export
logLik.sv_glm <- function(object, ...) {
  refuse("logLik: depends on every row and is not released; compare models by evaluation = EPSILON")
}

#' Forest plot of a private fit
#'
#' Ratios (or differences of means) with 95% intervals. Numbers are compared
#' over their typical range where the schema declares one, as in the report.
#'
#' @param x A fit of [sv_glm()] or [sv_cox()].
#' @param per `"typical"` compares numbers over their typical range, `"unit"`
#'   by one unit.
#' @param xlab,main Texts of the plot.
#' @param ... Passed to [plot.default()].
#' @return What was drawn, as a data frame, invisibly.
#' @export
plot.sv_glm <- function(x, per = c("typical", "unit"), xlab = NULL, main = "", ...) {
  per <- match.arg(per)
  table <- x$table[x$table$column != CONSTANT & !is.na(x$table$estimate), ]
  if (!nrow(table)) {
    refuse("plot: every coefficient was refused; print the fit to see why")
  }
  steps <- if (per == "typical") table$steps else 1
  drawn <- data.frame(
    term = table$term,
    estimate = table$estimate * steps, low = table$conf.low * steps,
    high = table$conf.high * steps, stringsAsFactors = FALSE
  )
  ratio <- attr(x$table, "ratio")
  if (!is.null(ratio)) {
    drawn[-1] <- exp(drawn[-1])
  }
  if (is.null(xlab)) {
    xlab <- paste(if (is.null(ratio)) "change of the mean" else ratio, "with 95% interval")
    if (per == "typical" && any(steps != 1)) {
      xlab <- paste0(xlab, "; numbers over their typical range")
    }
  }
  draw_forest(drawn, log = !is.null(ratio), xlab, main, ...)
  invisible(drawn)
}

draw_forest <- function(drawn, log, xlab, main, ...) {
  rows <- rev(seq_len(nrow(drawn)))
  wide <- max(graphics::strwidth(drawn$term, units = "inches")) + 0.4
  before <- graphics::par(mai = replace(graphics::par("mai"), 2, wide))
  on.exit(graphics::par(before))
  none <- if (log) 1 else 0
  seen <- range(c(drawn$low, drawn$high, drawn$estimate, none), na.rm = TRUE, finite = TRUE)
  graphics::plot(
    drawn$estimate, rows,
    log = if (log) "x" else "", xlim = seen, ylim = c(0.5, nrow(drawn) + 0.5), yaxt = "n",
    ylab = "", xlab = xlab, main = main, pch = 19, bty = "n", ...
  )
  graphics::abline(v = none, lty = 2, col = "grey50")
  graphics::segments(drawn$low, rows, drawn$high, rows, lwd = 2)
  graphics::axis(2, at = rows, labels = drawn$term, las = 1, tick = FALSE)
}

#' Tables of a fit for broom
#'
#' Registered for the generics `tidy()` and `glance()` where the package
#' generics (or broom) is installed.
#'
#' @param x A fit of [sv_glm()] or [sv_cox()].
#' @param conf.int Whether to add the ends of intervals.
#' @param conf.level Confidence level.
#' @param exponentiate Whether to give ratios in place of their logarithms.
#' @param ... Ignored.
#' @return `tidy()` is a data frame with `term`, `estimate`, `std.error`,
#'   `statistic`, `p.value`, `noise` and the ends; `glance()` one row with
#'   `nobs`, `epsilon`, `delta`, `trust`, `releases` and `release`, which is
#'   `FALSE` for a simulation.
#' @exportS3Method generics::tidy
tidy.sv_glm <- function(x, conf.int = FALSE, conf.level = 0.95, exponentiate = FALSE, ...) {
  table <- x$table
  found <- data.frame(
    term = table$term, estimate = table$estimate, std.error = table$std.error,
    statistic = table$estimate / table$std.error, p.value = table$p.value,
    noise = table$noise, stringsAsFactors = FALSE
  )
  if (conf.int) {
    ends <- interval_ends(table, conf.level)
    found$conf.low <- unname(ends[, 1])
    found$conf.high <- unname(ends[, 2])
  }
  if (exponentiate) {
    if (is.null(attr(table, "ratio"))) {
      refuse("exponentiate: the coefficients are no logarithms; leave it out")
    }
    for (name in intersect(c("estimate", "conf.low", "conf.high"), names(found))) {
      found[[name]] <- exp(found[[name]])
    }
  }
  as_tibble(found)
}

#' @rdname tidy.sv_glm
#' @exportS3Method generics::glance
glance.sv_glm <- function(x, ...) {
  privacy <- x$privacy
  as_tibble(data.frame(
    nobs = x$nobs, epsilon = as_number(privacy$epsilon), delta = as_number(privacy$delta),
    trust = privacy$trust$kind, releases = as_number(privacy$releases),
    release = isTRUE(privacy$release), stringsAsFactors = FALSE
  ))
}

# A tibble where that is installed, as broom gives.
as_tibble <- function(frame) {
  if (requireNamespace("tibble", quietly = TRUE)) {
    return(getExportedValue("tibble", "as_tibble")(frame))
  }
  frame
}
