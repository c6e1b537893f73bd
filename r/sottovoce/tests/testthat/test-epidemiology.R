# Of commands that an older program lacks, the package says so.
asked_or_lacking <- function(ask, lacking) {
  tryCatch(suppressMessages(ask()), error = function(e) {
    expect_match(conditionMessage(e), lacking)
    skip(conditionMessage(e))
  })
}

survival_schema <- function() {
  sv_schema(
    sv_event("died", "days", cuts = c(5, 10, 20)), age = sv_number(18, 100, typical = c(45, 85)),
    sex = sv_levels("female", "male")
  )
}

survival_rows <- function() {
  stays <- read_stays(4000)
  data.frame(
    age = stays$age, sex = stays$sex, days = stays$stay,
    died = as.integer(stays$readmitted == "yes")
  )
}

test_that("a descriptive table has groups, statistics and a statement", {
  skip_without_program()
  found <- asked_or_lacking(
    function() sv_describe(read_stays(2000), small_schema(), by = "sex", epsilon = 2, seed = 0),
    "has no command 'describe': update the program"
  )
  expect_true(all(c("name", "group", "statistic", "value", "low", "high") %in% names(found$table)))
  expect_true("male" %in% found$table$group)
  expect_output(print(found), "epsilon = 2.000")
})

test_that("survival curves have times and a test", {
  skip_without_program()
  found <- asked_or_lacking(
    function() {
      sv_survfit(Surv(days, died) ~ sex, survival_rows(), survival_schema(), epsilon = 3, seed = 0)
    },
    "has no command 'survival': update the program"
  )
  expect_true(all(found$curves$survival <= 1, na.rm = TRUE))
  expect_output(print(found), "epsilon = 3.000")
})

test_that("hazard ratios have intervals", {
  skip_without_program()
  fit <- asked_or_lacking(
    function() {
      sv_cox(Surv(days, died) ~ age + sex, survival_rows(), survival_schema(),
        epsilon = 3, seed = 0
      )
    },
    "fits no labels of events .*: update the program"
  )
  expect_s3_class(fit, "sv_cox")
  expect_equal(attr(fit$table, "ratio"), "hazard ratio")
  expect_output(print(fit), "epsilon = 3.000")
})

test_that("a command that is lacking is named", {
  skip_without_program()
  expect_error(sottovoce:::ask_json("no-such-thing"), "has no command 'no-such-thing'")
})
