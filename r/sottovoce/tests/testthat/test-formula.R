chosen <- function(formula) names(sottovoce:::schema_of_formula(formula, stays_schema())$columns)

test_that("a formula chooses columns in the schema's order", {
  expect_equal(chosen(readmitted ~ sex + age), c("age", "sex"))
  expect_equal(chosen(readmitted ~ 1 + (log1p(stay) + age)), c("age", "stay"))
  expect_length(chosen(readmitted ~ .), 6)
})

test_that("terms that a schema cannot express are refused in one line", {
  for (formula in c(
    readmitted ~ age * sex, readmitted ~ age:sex, readmitted ~ poly(age, 2), readmitted ~ I(age^2),
    readmitted ~ factor(ward), readmitted ~ age - 1, readmitted ~ offset(age),
    readmitted ~ log1p(age)
  )) {
    expect_error(chosen(formula), "^formula: the term `.*` cannot be expressed by the schema; [^\n]*$")
  }
})

test_that("unknown columns, sites as terms, and another outcome are refused", {
  expect_error(chosen(readmitted ~ bmi), "declares no column 'bmi'")
  expect_error(chosen(readmitted ~ hospital), "declares no column 'hospital'")
  expect_error(chosen(age ~ sex), "left side is `age`")
  expect_error(chosen(readmitted ~ 1), "needs a column")
})

test_that("the outcome of a hazard is a time and an event", {
  schema <- sv_schema(sv_event("died", "days", c(30, 90)), age = sv_number(18, 100))
  expect_silent(sottovoce:::schema_of_formula(Surv(days, died) ~ age, schema))
  expect_silent(sottovoce:::schema_of_formula(survival::Surv(days, died) ~ age, schema))
  expect_error(sottovoce:::schema_of_formula(Surv(died, days) ~ age, schema), "label is `Surv")
  expect_error(sottovoce:::schema_of_formula(died ~ age, schema), "label is `Surv")
})

test_that("families have their canonical links", {
  expect_equal(sottovoce:::family_name(binomial), "binomial")
  expect_equal(sottovoce:::family_name("gaussian"), "gaussian")
  expect_equal(sottovoce:::family_name(poisson()), "poisson")
  expect_error(sottovoce:::family_name(binomial("probit")), "has the link logit here, not probit")
  expect_error(sottovoce:::family_name(Gamma()), "must be binomial")
  expect_error(
    sv_glm(readmitted ~ age, read_stays(10), small_schema(), gaussian(), epsilon = 1),
    "needs a label by sv_target\\(\\)"
  )
})

test_that("arguments of glm() that would do harm or nothing are refused", {
  stays <- read_stays(10)
  ask <- function(...) sv_glm(readmitted ~ age, stays, small_schema(), epsilon = 1, ...)
  expect_error(ask(subset = age > 40), "size of the subset")
  expect_error(ask(weights = age), "takes no weights")
  expect_error(sv_glm(readmitted ~ age, stays, small_schema()), "^epsilon: must be given")
  expect_error(ask(seed = 0.5), "must be a whole number")
  expect_error(ask(trust = "me"), "^trust=me: must be nobody, sum or curator$")
})
