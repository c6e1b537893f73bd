#' What a budget will buy
#'
#' Forecasts from public facts alone which standard errors to expect, before
#' there are rows.
#'
#' @param formula Outcome and columns of the schema.
#' @param schema An [sv_schema()], or the path of its file.
#' @param sizes Rows of every site: one number with `nodes`, or one a site.
#' @param nodes Number of sites, where `sizes` is one number.
#' @inheritParams sv_glm
#' @param ... Settings of `sottovoce plan --set`, such as
#'   `expect_positives = 0.2`.
#' @return An object of class `sv_plan`, with `table` (the standard error to
#'   expect of every coefficient, without privacy, and the share of runs in
#'   which it is printed), `rows_half` and `rows_needed`, and `privacy`.
#' @examples
#' declared <- sv_schema(
#'   label = sv_classes("back", positive = "yes"),
#'   age = sv_number(18, 100, typical = c(45, 85))
#' )
#' if (sv_available()) {
#'   sv_plan(back ~ age, declared, sizes = 5000, nodes = 4, epsilon = 1, trust = "sum")
#' }
#' @export
sv_plan <- function(formula, schema, sizes, nodes = NULL, epsilon, delta = 1e-5, trust = NULL,
                    ...) {
  require_epsilon(missing(epsilon))
  schema <- schema_of_formula(formula, as_schema(schema))
  folder <- private_folder()
  on.exit(unlink(folder, recursive = TRUE))
  if (length(sizes) == 1L && is.null(nodes)) {
    nodes <- 1
  }
  answer <- ask_json(c(
    "plan", "--inference", "--schema", schema_file(schema, folder),
    option("sizes", sizes), option("nodes", nodes), option("epsilon", epsilon),
    option("delta", delta), option("trust", trust), setting_options(list(...))
  ))
  forecast <- answer$forecast
  lines <- forecast$standard_errors
  table <- data.frame(
    term = vapply(lines, term_name, ""),
    std.error = number_field(lines, "standard_error"),
    without.privacy = number_field(lines, "without_privacy"),
    printed = number_field(lines, "printed"), stringsAsFactors = FALSE
  )
  structure(
    list(
      call = without_rows(match.call(), "sv_plan"), table = table, rows = as_number(forecast$rows),
      rows_half = as_number(forecast$rows_half), rows_needed = as_number(forecast$rows_needed),
      expects = forecast$expects,
      privacy = answer$privacy
    ),
    class = "sv_plan"
  )
}

#' @export
print.sv_plan <- function(x, digits = 3, ...) {
  cat("\nCall:  ", paste(deparse(x$call), collapse = "\n"), "\n\n", sep = "")
  shown <- x$table
  shown$printed <- sprintf("%.0f%%", 100 * shown$printed)
  names(shown) <- c("term", "std. error", "without privacy", "printed in")
  print(shown, digits = digits, row.names = FALSE)
  if (!is.na(x$rows_half)) {
    print_wrapped(sprintf(
      "Half of the coefficients are printed from about %s rows on, all from %s.",
      format(x$rows_half, big.mark = ","), format(x$rows_needed, big.mark = ",")
    ))
  }
  print_wrapped(sprintf("A plan, no data were read. It expects: %s.", x$expects))
  print_statement(x$privacy)
  invisible(x)
}
