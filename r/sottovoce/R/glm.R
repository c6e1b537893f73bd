#' Regression under differential privacy
#'
#' Coefficients with intervals that hold sampling and privacy noise. The rows
#' stay in this process and in the program `sottovoce`; all that is shown was
#' released under `epsilon`.
#'
#' Each call draws noise of its own and **spends `epsilon` of its own**, also
#' where coefficients are refused. Keep a lifetime budget with [sv_budget()].
#'
#' With a `seed` this is a *simulation*: it can be repeated, and must not be
#' published as private. Without one the noise comes from the operating
#' system: a *release*.
#'
#' @param formula Outcome and columns of the schema, such as
#'   `died ~ age + sex`, or `died ~ .` for all. Terms that a schema cannot
#'   express are refused.
#' @param data A data frame, or the path of a CSV or Parquet file. A data frame
#'   goes to the program in a private temporary file, which is removed.
#' @param schema An [sv_schema()], or the path of its file.
#' @param family [binomial()], [gaussian()] or [poisson()], with its canonical
#'   link; it must fit the schema's label.
#' @param epsilon Privacy loss of the whole run for one row.
#' @param delta Delta of the guarantee: far below 1 over the number of rows.
#' @param trust Whom people trust with rows: `"nobody"` but their site, `"sum"`
#'   (only sums over all sites are seen), or a `"curator"` who holds all rows.
#' @param sites Name of the column of sites; by default the schema's.
#' @param partition How rows lie at sites where no column says so: `"iid"`
#'   with `nodes`, for rehearsals.
#' @param nodes Number of sites, with `partition`.
#' @param ledger An [sv_budget()] or the path of its file, which is charged.
#' @param run Name of the run in the ledger.
#' @param seed A whole number for a simulation; `NULL` for a release.
#' @param evaluation Epsilon of held-out rows, on which the model is
#'   evaluated; `NULL` for none.
#' @param save Path for the answers, for `sottovoce report` and `predict`;
#'   `NULL` keeps them in the object alone (and beside the ledger).
#' @param ... Settings of `sottovoce train --set`, such as `cut = 0.3` or
#'   `site_constants = FALSE`.
#' @return An object of class `sv_glm`, with `coefficients`, `table`, `vcov`,
#'   `privacy`, `evaluation` and `notes`.
#' @seealso [sv_predict()], [sv_plan()], [plot.sv_glm()], [tidy.sv_glm()]
#' @examples
#' stays <- read.csv(
#'   system.file("extdata", "hospitals.csv.gz", package = "sottovoce"),
#'   na.strings = ""
#' )
#' declared <- sv_schema(
#'   label = sv_classes("readmitted", positive = "yes", negative = "no"),
#'   age = sv_number(18, 100, typical = c(45, 85)),
#'   sex = sv_levels("female", "male"),
#'   site = "hospital"
#' )
#' if (sv_available()) {
#'   fit <- sv_glm(readmitted ~ age + sex, stays, declared,
#'     epsilon = 3, trust = "sum", seed = 0
#'   )
#'   fit
#'   confint(fit)
#' }
#' @export
sv_glm <- function(formula, data, schema = NULL, family = stats::binomial(), epsilon,
                   delta = 1e-5, trust = NULL, sites = NULL, partition = NULL, nodes = NULL,
                   ledger = NULL, run = NULL, seed = NULL, evaluation = NULL, save = NULL, ...) {
  require_epsilon(missing(epsilon))
  refuse_not_here(match.call(expand.dots = FALSE)$...)
  fit_by_formula(
    formula, data, schema, family_name(family),
    asked = list(
      epsilon = epsilon, delta = delta, trust = trust, sites = sites, partition = partition,
      nodes = nodes, ledger = ledger, run = run, seed = seed, evaluation = evaluation, save = save
    ),
    settings = list(...), call = match.call()
  )
}

fit_by_formula <- function(formula, data, schema, family, asked, settings, call) {
  schema <- require_declared(schema, formula, data)
  if (!is.null(asked$sites)) {
    schema$site <- asked$sites
  }
  declared <- schema
  schema <- schema_of_formula(formula, declared)
  check_family(family, schema)
  check_in_data(schema, data)
  note_scale(schema, length(declared$columns))
  folder <- private_folder()
  on.exit(unlink(folder, recursive = TRUE))
  saved <- asked$save
  if (is.null(saved) && is.null(asked$ledger)) {
    saved <- file.path(folder, "run.json")
  }
  arguments <- c(
    "train", "--inference",
    "--data", rows_file(data, folder),
    "--schema", schema_file(schema, folder),
    privacy_options(asked),
    site_options(asked, schema),
    option("evaluation", asked$evaluation),
    option("save", saved),
    setting_options(settings)
  )
  answer <- ask_json(arguments)
  if (is.null(saved)) {
    saved <- stored_beside(ledger_path(asked$ledger), answer$privacy$ledger$run)
  }
  new_fit(answer, saved_text(saved), formula, family, schema, call)
}

require_declared <- function(schema, formula, data) {
  if (is.null(schema)) {
    needed <- if (inherits(formula, "formula")) all.vars(formula) else column_names(data)
    refuse(
      "schema: bounds and levels are public facts and are never read off rows; declare %s by ",
      "sv_schema(), which sv_draft() drafts",
      values = paste(utils::head(setdiff(needed, "."), 8), collapse = ", ")
    )
  }
  as_schema(schema)
}

check_in_data <- function(schema, data) {
  there <- column_names(data)
  if (is.null(there)) {
    return(invisible())
  }
  plain <- Filter(function(one) one$kind %in% c("number", "category", "bins", "date"),
    schema$columns)
  for (name in c(names(plain), label_columns(schema), schema$site)) {
    if (!name %in% there) {
      refuse("data: has no column %s, which the schema declares; add it, or leave it out",
        values = sQuote(name, FALSE)
      )
    }
  }
}

privacy_options <- function(asked) {
  if (!is.null(asked$trust) && !asked$trust %in% c("nobody", "sum", "curator")) {
    refuse("trust=%s: must be nobody, sum or curator", values = asked$trust[1])
  }
  noise <- if (is.null(asked$seed)) "--system-noise" else option("seed", whole(asked$seed))
  c(
    option("epsilon", asked$epsilon), option("delta", asked$delta), option("trust", asked$trust),
    option("ledger", ledger_path(asked$ledger)), option("run", asked$run), noise
  )
}

whole <- function(seed) {
  if (!is.numeric(seed) || length(seed) != 1L || is.na(seed) || seed < 0 || seed %% 1 != 0) {
    refuse("seed: must be a whole number from 0 on, or NULL for a release")
  }
  seed
}

site_options <- function(asked, schema) {
  if (is.null(schema$site) && is.null(asked$partition) && is.null(asked$nodes)) {
    # A table without sites is that of one site.
    return(option("nodes", 1))
  }
  c(option("partition", asked$partition), option("nodes", asked$nodes))
}

# Arguments of glm() that would do something else here, or nothing.
NOT_HERE <- c(
  subset = "a filtered table tells the size of the subset; declare a column for it",
  weights = "inference takes no weights",
  offset = "declare the time seen in sv_count(offset = )",
  na.action = "declare missing = in sv_number() or sv_levels()",
  start = "the recipe starts by itself",
  control = "the recipe has no control; see `sottovoce train --set help`",
  contrasts = "name the reference by base = in sv_levels()"
)

# Before they are evaluated: a subset names columns of the data.
refuse_not_here <- function(given) {
  refused <- intersect(names(given), names(NOT_HERE))
  if (length(refused)) {
    refuse("%s: is not offered: %s", values = list(refused[1], NOT_HERE[[refused[1]]]))
  }
}

require_epsilon <- function(absent) {
  if (absent) {
    refuse("epsilon: must be given, such as epsilon = 1: the privacy loss of this run for one row")
  }
}

setting_options <- function(settings) {
  if (!length(settings)) {
    return(character())
  }
  if (is.null(names(settings)) || !all(nzchar(names(settings)))) {
    refuse("...: each setting needs a name, such as cut = 0.3")
  }
  texts <- vapply(
    settings,
    function(value) {
      if (is.logical(value)) ifelse(value, "yes", "no") else paste(number_text(value), collapse = ",")
    },
    ""
  )
  as.vector(rbind("--set", paste0(names(settings), "=", texts)))
}

saved_text <- function(path) {
  if (is.null(path) || !file.exists(path)) {
    return(NULL)
  }
  paste(readLines(path, warn = FALSE, encoding = "UTF-8"), collapse = "\n")
}

# Numbers without noise that a simulation shows to the holder of the rows; they are not kept.
EXACT <- c("exact", "test_error", "mean_test_error", "holder_only", "seconds")

new_fit <- function(answer, saved, formula, family, schema, call) {
  table <- coefficient_table(answer$coefficients)
  names_of_lines <- table$term
  covariance <- matrix_or_null(answer$covariance, names_of_lines)
  notes <- c(answer$weighed, answer$clusters, unlist(answer$notes))
  structure(
    list(
      call = without_rows(call, if (family == "hazards") "sv_cox" else "sv_glm"),
      formula = bare_formula(formula), family = family,
      coefficients = stats::setNames(table$estimate, names_of_lines),
      table = table, vcov = covariance,
      privacy = answer$privacy,
      evaluation = answer$evaluation,
      notes = as.character(notes[nzchar(notes)]),
      needs = answer$needs,
      nobs = public_rows(answer),
      sites = as.character(unlist(answer$sites)),
      schema = schema,
      answer = answer[setdiff(names(answer), EXACT)],
      saved = saved
    ),
    class = c(if (family == "hazards") "sv_cox", "sv_glm")
  )
}

# The number of rows, where the privacy statement says that it is public; else NA.
public_rows <- function(answer) {
  public <- answer$privacy$public
  if (is.null(answer$n_train) || is.null(public) || !grepl("row counts", public)) {
    return(NA_real_)
  }
  sum(as.numeric(unlist(answer$n_train)))
}

RATIOS <- c("odds_ratio", "hazard_ratio", "rate_ratio")

# One row for each coefficient, from lines of JSON.
coefficient_table <- function(lines) {
  ratio <- intersect(RATIOS, names(lines[[1]]))
  field <- function(name) number_field(lines, name)
  text <- function(name) text_field(lines, name)
  table <- data.frame(
    term = vapply(lines, term_name, ""),
    column = text("name"), level = text("level"), reference = text("reference"),
    unit = text("unit"),
    estimate = field("estimate"), std.error = field("standard_error"),
    noise = field("noise_share"), conf.low = field("low"), conf.high = field("high"),
    p.value = field("p"), steps = field("steps"),
    strained = vapply(lines, function(one) isTRUE(one$unsure), NA),
    one.sided = text("one_sided"), cause = text("cause"), why = text("refused"),
    stringsAsFactors = FALSE
  )
  if (length(ratio)) {
    table$ratio <- field(ratio)
    table$ratio.low <- field(paste0(ratio, "_low"))
    table$ratio.high <- field(paste0(ratio, "_high"))
  }
  attr(table, "ratio") <- if (length(ratio)) gsub("_", " ", ratio)
  table
}

CONSTANT <- "(constant)"

# Names as model.matrix() gives them: wardsurgery, log1p(stay), (Intercept).
term_name <- function(line) {
  if (identical(line$name, CONSTANT)) {
    if (is.null(line$level)) {
      return("(Intercept)")
    }
    return(paste0("(Intercept):", line$level))
  }
  if (is.null(line$level)) {
    if (is.null(line$unit) || !grepl("(", line$unit, fixed = TRUE)) {
      return(line$name)
    }
    return(line$unit)
  }
  paste0(line$name, line$level)
}

number_field <- function(lines, name) {
  vapply(lines, function(one) as_number(one[[name]]), 0)
}

as_number <- function(value) {
  if (is.null(value)) NA_real_ else suppressWarnings(as.numeric(value))
}

text_field <- function(lines, name) {
  vapply(lines, function(one) if (is.null(one[[name]])) NA_character_ else as.character(one[[name]]), "")
}

lines_to_frame <- function(lines, fields) {
  columns <- lapply(fields, function(name) {
    values <- lapply(lines, `[[`, name)
    if (any(vapply(values, is.character, NA))) text_field(lines, name) else number_field(lines, name)
  })
  names(columns) <- fields
  as.data.frame(columns, stringsAsFactors = FALSE, optional = TRUE)
}

matrix_or_null <- function(rows, names) {
  if (is.null(rows)) {
    return(NULL)
  }
  values <- vapply(rows, function(row) vapply(row, as_number, 0), numeric(length(names)))
  matrix(values, length(names), byrow = TRUE, dimnames = list(names, names))
}
