test_that("bounds and levels are not taken from rows", {
  stays <- read_stays(20)
  expect_error(sv_schema(stays), "never read off rows; declare hospital, age")
  expect_error(sv_glm(readmitted ~ age, stays, epsilon = 1), "never read off rows")
  expect_error(sv_number(min(stays$age), 100), "`min\\(stays\\$age\\)` is computed from rows")
  expect_error(sv_number(18, ceiling(max(stays$age))), "is computed from rows")
  expect_error(sv_number(0, 1, typical = quantile(stays$age, c(.05, .95))), "computed from rows")
  expect_error(sv_levels(unique(stays$ward)), "is computed from rows")
  expect_error(sv_number(18), "must be declared")
  expect_silent(sv_number(0, max(c(100, 120))))
})

test_that("a schema is written as TOML, with texts that need quotes", {
  schema <- sv_schema(
    sv_classes("x", positive = 1),
    `a "b"` = sv_levels(low = c("l", "L"), "high", other = TRUE),
    day = sv_date("2023-01-01", "2024-12-31"), part = sv_number(0.1, 1 / 3), na = "-9"
  )
  text <- capture.output(print(schema))
  expect_true("na = [\"-9\"]" %in% text)
  expect_true("label = { column = \"x\", positive = \"1\" }" %in% text)
  expect_true("[columns.\"a \\\"b\\\"\"]" %in% text)
  expect_true("values = { low = [\"l\", \"L\"], high = [\"high\"] }" %in% text)
  expect_true("lo = 0.1" %in% text)
  expect_true("hi = 0.33333333333333331" %in% text)
})

test_that("a file of a schema is read back as it was declared", {
  skip_without_program()
  file <- tempfile(fileext = ".toml")
  sv_write_schema(stays_schema(), file)
  again <- tempfile(fileext = ".toml")
  sv_write_schema(sv_read_schema(file), again)
  lines <- readLines(file)
  expect_setequal(
    sub("intercept = true", "intercept = 1", lines), readLines(again)
  )
  writeLines(sub("hi = 100", "hi = 1", lines), file)
  expect_error(sv_read_schema(file), "age")
})

test_that("the scale is that which the program proposes", {
  skip_without_program()
  open <- stays_schema(scale = NULL)
  expect_equal(sv_check(open)$scale, 2.07)
  expect_equal(sottovoce:::resolve_scale(stays_schema(scale = "auto"))$scale, 2.07)
})

test_that("a draft has names alone", {
  stays <- read_stays(5)
  code <- capture.output(sv_draft(stays, "readmitted", "hospital"))
  expect_match(code, "age = sv_number(lo = , hi = )", fixed = TRUE, all = FALSE)
  expect_false(any(grepl("Birkenau|medicine", code)))
})
