test_that("a fit has the numbers of the command line, to the digit", {
  skip_without_program()
  stays <- read_stays()
  fit <- sv_glm(
    readmitted ~ age + sex + ward + admissions + sodium + log1p(stay), stays, stays_schema(),
    epsilon = 3, trust = "sum", seed = 0, evaluation = 1, cut = 0.3
  )
  folder <- tempfile()
  dir.create(folder)
  on.exit(unlink(folder, recursive = TRUE))
  table <- file.path(folder, "hospitals.csv")
  writeLines(readLines(system.file("extdata", "hospitals.csv.gz", package = "sottovoce")), table)
  schema <- file.path(folder, "schema.toml")
  sv_write_schema(stays_schema(), schema)
  there <- command_json(
    "train", "--data", table, "--schema", schema, "--inference", "--trust", "sum",
    "--epsilon", "3", "--evaluation", "1", "--set", "cut=0.3", "--json"
  )
  of <- function(name) vapply(there$coefficients, function(line) line[[name]], 0)
  expect_identical(unname(coef(fit)), of("estimate"))
  expect_identical(unname(confint(fit)[, 1]), of("low"))
  expect_identical(unname(confint(fit)[, 2]), of("high"))
  expect_identical(fit$table$p.value, of("p"))
  expect_identical(fit$evaluation$auc, there$evaluation$auc)
  # Those of the tutorial's table.
  expect_equal(unname(round(coef(fit)[c("sexmale", "wardsurgery")], 3)), c(0.136, -0.402))
  expect_equal(names(coef(fit))[c(1, 7, 8)], c("age", "log1p(stay)", "(Intercept):Birkenau"))
  expect_equal(unname(sqrt(diag(vcov(fit)))), fit$table$std.error)

  expect_equal(nobs(fit), 16000)
  expect_output(print(fit), "epsilon = 3.000, delta = 1e-05, proved for")
  expect_output(print(fit), "Simulation, not a release")
  expect_output(print(summary(fit)), "auc +0.6991 \\(0.665 to 0.739\\)")
  expect_output(print(summary(fit)), "epsilon = 3.000")

  half <- diff(confint(fit, "age", level = 0.9)[1, ]) / 2
  expect_equal(unname(half), qnorm(0.95) * fit$table$std.error[1])
  expect_error(confint(fit, "bmi"), "is no coefficient")

  new <- read.csv(system.file("extdata", "new.csv", package = "sottovoce"), na.strings = "")
  expect_equal(
    suppressMessages(predict(fit, new)), c(0.36904, 0.196754, 0.200504, 0.269162, 0.063258)
  )
  expect_equal(suppressMessages(predict(fit, new, "class")), c("yes", "no", "no", "no", "no"))
  ends <- suppressMessages(predict(fit, new, interval = 0.95))
  expect_true(all(ends[, "lwr"] < ends[, "fit"] & ends[, "fit"] < ends[, "upr"]))
  expect_error(predict(fit), "newdata: is needed")
  for (refused in list(residuals, fitted, logLik)) {
    expect_error(refused(fit), "not released")
  }

  pdf(NULL)
  drawn <- plot(fit)
  dev.off()
  expect_equal(drawn$estimate[1], exp(40 * coef(fit)[["age"]]))
  page <- file.path(folder, "page.html")
  sv_report(fit, page, title = "Who comes back?")
  expect_match(readLines(page), "Who comes back?", fixed = TRUE, all = FALSE)

  skip_if_not_installed("generics")
  lines <- generics::tidy(fit, conf.int = TRUE, exponentiate = TRUE)
  expect_equal(lines$estimate, exp(unname(coef(fit))))
  expect_equal(lines$conf.high, exp(of("high")))
  whole <- generics::glance(fit)
  expect_equal(whole$trust, "sum")
  expect_false(whole$release)
})

test_that("a release is charged to its ledger and has no exact number", {
  skip_without_program()
  stays <- read_stays(2000)
  file <- tempfile(fileext = ".ledger")
  expect_error(sv_budget(file), "there is no such ledger; give epsilon")
  budget <- suppressMessages(sv_budget(file, epsilon = 5, nodes = 4))
  expect_equal(nrow(as.data.frame(budget)), 0)
  fit <- suppressMessages(sv_glm(
    readmitted ~ age + sex, stays, small_schema(),
    epsilon = 1, trust = "sum", ledger = budget, run = "first"
  ))
  expect_true(fit$privacy$release)
  expect_equal(as.data.frame(budget)$run, "first")
  expect_output(print(budget), "spent epsilon [1-4]\\.")
  expect_output(print(fit), "Ledger: run 'first'; spent")
  expect_null(fit$answer$exact)
  expect_true(nzchar(fit$saved))
  expect_error(sv_budget(file, epsilon = 9), "the budget of a ledger never changes")
  unlink(c(file, paste0(file, ".results")), recursive = TRUE)
})

test_that("refused coefficients are NA, with the reason", {
  skip_without_program()
  fit <- suppressMessages(sv_glm(
    readmitted ~ age + sex, read_stays(500), small_schema(), epsilon = 0.01, seed = 0
  ))
  expect_true(all(is.na(coef(fit))))
  expect_output(print(fit), "Not shown: ")
  expect_error(plot(fit), "every coefficient was refused")
  expect_true(all(is.na(confint(fit))))
})

test_that("a number is fitted by least squares, at one site", {
  skip_without_program()
  schema <- sv_schema(
    sv_target("sodium", 110, 165), age = sv_number(18, 100, typical = c(45, 85)),
    sex = sv_levels("female", "male"), scale = "auto"
  )
  fit <- sv_glm(sodium ~ age + sex, read_stays(5000), schema, gaussian(), epsilon = 3, seed = 1)
  expect_equal(names(coef(fit)), c("age", "sexmale", "(Intercept)"))
  expect_equal(coef(fit)[["(Intercept)"]], 138, tolerance = 0.02)
  expect_null(attr(fit$table, "ratio"))
  expect_length(fit$sites, 1)
})

test_that("a plan forecasts standard errors from sizes alone", {
  skip_without_program()
  plan <- sv_plan(readmitted ~ ., small_schema(), 2000, nodes = 4, epsilon = 3, trust = "sum")
  expect_equal(plan$table$term[1:2], c("age", "sexmale"))
  expect_true(all(plan$table$std.error >= plan$table$without.privacy))
  expect_output(print(plan), "epsilon = 3.000")
})
