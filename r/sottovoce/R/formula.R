# A formula chooses columns of the schema; what a schema cannot express is refused.

# The schema with only the columns of a formula, in the schema's own order.
schema_of_formula <- function(formula, schema, call = "sv_glm") {
  if (!inherits(formula, "formula")) {
    refuse("formula: must be a formula such as died ~ age + sex")
  }
  right <- formula[[length(formula)]]
  chosen <- columns_of_terms(right, schema)
  left <- if (length(formula) == 3L) formula[[2]] else NULL
  schema <- check_left_side(left, schema, call)
  roles <- c(label_columns(schema), schema$site)
  if (any(chosen %in% roles)) {
    refuse(
      "formula: %s is the outcome or the site, which is no term; leave it out",
      values = sQuote(intersect(chosen, roles)[1], FALSE)
    )
  }
  schema$columns <- schema$columns[names(schema$columns) %in% chosen]
  schema$ignore <- list("*")
  schema
}

# The scale of a row depends on its columns.
note_scale <- function(schema, declared) {
  chosen <- length(schema$columns)
  if (is.numeric(schema$scale) && chosen < declared) {
    message(
      "note: scale = ", number_text(schema$scale), " was declared for ", declared,
      " columns, and the formula has ", chosen,
      ": scale = \"auto\" in sv_schema() fits it to the formula"
    )
  }
}

columns_of_terms <- function(right, schema) {
  declared <- names(schema$columns)
  chosen <- character()
  for (term in added_terms(right)) {
    chosen <- c(chosen, column_of_term(term, schema, declared))
  }
  if (!length(chosen)) {
    refuse("formula: needs a column on its right side; name one of %s",
      values = paste(declared, collapse = ", ")
    )
  }
  unique(chosen)
}

# The summands of a right side, as a list of expressions.
added_terms <- function(expression) {
  if (is.call(expression) && identical(expression[[1]], as.name("+"))) {
    return(do.call(c, lapply(as.list(expression)[-1], added_terms)))
  }
  if (is.call(expression) && identical(expression[[1]], as.name("("))) {
    return(added_terms(expression[[2]]))
  }
  list(expression)
}

column_of_term <- function(term, schema, declared) {
  text <- paste(deparse(term), collapse = " ")
  if (identical(term, 1) || identical(term, 1L)) {
    return(character())
  }
  if (identical(text, ".")) {
    return(declared)
  }
  if (is.name(term)) {
    name <- as.character(term)
    if (!name %in% declared) {
      refuse(
        "formula: the schema declares no column %s; name one of %s, or declare it",
        values = list(sQuote(name, FALSE), paste(declared, collapse = ", "))
      )
    }
    return(name)
  }
  if (is.call(term) && identical(term[[1]], as.name("log1p")) && is.name(term[[2]])) {
    name <- as.character(term[[2]])
    if (identical(schema$columns[[name]]$transform, "log1p")) {
      return(name)
    }
  }
  refuse(
    "formula: the term `%s` cannot be expressed by the schema; %s",
    values = list(text, remedy_for(term))
  )
}

remedy_for <- function(term) {
  called <- if (is.call(term)) as.character(term[[1]])[1] else ""
  switch(called,
    ":" = ,
    "*" = ,
    "^" = "products have no intervals yet: leave it out",
    "-" = "every model has a constant: name the columns with +",
    offset = "declare the time seen in sv_count(offset = )",
    strata = "sites have constants of their own: declare site in sv_schema()",
    factor = ,
    C = "declare the column's levels by sv_levels() and name the column alone",
    log1p = "declare transform = \"log1p\" of the column and name the column alone",
    "declare the column as it is in the data and name it alone"
  )
}

label_columns <- function(schema) {
  label <- schema$label
  c(label$column, label$event, label$time, schema$offset$column)
}

check_left_side <- function(left, schema, call) {
  if (is.null(schema$label)) {
    refuse("label: the schema declares no outcome; give label = in sv_schema()")
  }
  if (is.null(left)) {
    return(schema)
  }
  wanted <- label_columns(schema)[1]
  if (is.call(left) && identical(as.character(left[[1]])[length(left[[1]])], "Surv")) {
    named <- vapply(as.list(left)[-1], function(one) paste(deparse(one), collapse = ""), "")
    wanted <- c(schema$label$time, schema$label$event)
    if (identical(unname(named), wanted)) {
      return(schema)
    }
  } else if (is.name(left) && identical(as.character(left), wanted) && is.null(schema$label$time)) {
    return(schema)
  }
  shown <- wanted
  if (!is.null(schema$label$time)) {
    shown <- sprintf("Surv(%s, %s)", schema$label$time, schema$label$event)
  }
  refuse(
    "formula: the left side is `%s`, and the schema's label is `%s`; correct one of them",
    values = list(paste(deparse(left), collapse = ""), shown)
  )
}

# Name of a family of the program, from a function, an object or a name; only canonical links.
family_name <- function(family) {
  if (is.character(family)) {
    family <- switch(family,
      binomial = stats::binomial(),
      gaussian = stats::gaussian(),
      poisson = stats::poisson(),
      refuse("family=%s: must be binomial, gaussian or poisson", values = family)
    )
  }
  if (is.function(family)) {
    family <- family()
  }
  links <- c(binomial = "logit", gaussian = "identity", poisson = "log")
  name <- family$family
  if (is.null(name) || !name %in% names(links)) {
    refuse("family: must be binomial(), gaussian() or poisson()")
  }
  if (family$link != links[[name]]) {
    refuse("family: %s has the link %s here, not %s; leave the link out",
      values = list(name, links[[name]], family$link)
    )
  }
  name
}

family_of_label <- function(schema) {
  label <- schema$label
  if (!is.null(label$event)) {
    return("hazards")
  }
  if (identical(label$family, "poisson")) {
    return("poisson")
  }
  if (!is.null(label$positive)) {
    return("binomial")
  }
  if (!is.null(label$lo)) "gaussian" else "several classes"
}

LABELS <- c(
  binomial = "sv_classes()", gaussian = "sv_target()", poisson = "sv_count()",
  hazards = "sv_event()"
)

check_family <- function(wanted, schema) {
  declared <- family_of_label(schema)
  if (declared != wanted) {
    refuse(
      "family=%s: needs a label by %s, and the schema's is for %s; correct one of them",
      values = list(wanted, LABELS[[wanted]], declared)
    )
  }
}
