test_that("rows are written exactly, in a file that only the user can read", {
  folder <- sottovoce:::private_folder()
  on.exit(unlink(folder, recursive = TRUE))
  frame <- data.frame(
    number = c(1 / 3, NA, 1e300), text = c("a,b", "say \"ä\"", NA), truth = c(TRUE, NA, FALSE),
    level = factor(c("x", "y", NA)), day = as.Date(c("2024-02-29", NA, "2024-03-01")),
    `two words` = 1:3, check.names = FALSE
  )
  file <- sottovoce:::rows_file(frame, folder)
  expect_equal(readLines(file, encoding = "UTF-8"), c(
    "\"number\",\"text\",\"truth\",\"level\",\"day\",\"two words\"",
    "\"0.33333333333333331\",\"a,b\",\"true\",\"x\",\"2024-02-29\",\"1\"",
    ",\"say \"\"ä\"\"\",,\"y\",,\"2\"",
    "\"1e+300\",,\"false\",,\"2024-03-01\",\"3\""
  ))
  skip_on_os("windows")
  expect_equal(format(file.mode(file)), "600")
  expect_equal(format(file.mode(folder)), "700")
  frame$list <- list(1, 2, 3)
  expect_error(sottovoce:::rows_file(frame, folder), "column 'list' is of class 'list'")
})

left_over <- function() list.files(tempdir(), "^sottovoce-")

test_that("rows are removed after an error, and after a fit", {
  skip_without_program()
  stays <- read_stays(200)
  expect_error(sv_glm(readmitted ~ age, stays, small_schema(), epsilon = -1), "^epsilon=-1")
  expect_length(left_over(), 0)
  suppressMessages(sv_glm(readmitted ~ age, stays, small_schema(), epsilon = 1, seed = 0))
  expect_length(left_over(), 0)
})

test_that("a fit that is passed on brings no rows along", {
  secret <- data.frame(age = 40:60, readmitted = "yes")
  call <- as.call(list(sv_glm, formula = readmitted ~ age, data = secret, epsilon = 1))
  bare <- sottovoce:::without_rows(call, "sv_glm")
  expect_equal(bare$data, quote(data))
  expect_identical(environment(bare$formula), globalenv())
  expect_equal(deparse(bare), "sv_glm(formula = readmitted ~ age, data = data, epsilon = 1)")
  expect_identical(environment(sottovoce:::bare_formula(readmitted ~ age)), globalenv())
})

test_that("a program that is not sottovoce is refused", {
  before <- options(sottovoce.command = "echo")
  on.exit(options(before))
  expect_false(sv_available())
  expect_error(sv_version(), "^option sottovoce.command=echo: is not the program")
})

test_that("base R runs the program as processx does", {
  skip_without_program()
  command <- sottovoce:::find_command()
  said <- sottovoce:::run_by_system(command[1], c(command[-1], "plan", "--epsilon", "-1"))
  expect_equal(said$status, 2)
  expect_match(said$stderr, "epsilon=-1.0: must be > 0", all = FALSE)
})
