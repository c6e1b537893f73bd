stays_schema <- function(..., scale = 2.07) {
  sv_schema(
    label = sv_classes("readmitted", positive = "yes", negative = "no"),
    age = sv_number(18, 100, typical = c(45, 85)),
    sex = sv_levels("female", "male"),
    ward = sv_levels("medicine", "surgery", "geriatrics"),
    admissions = sv_number(0, 15, typical = c(0, 4)),
    sodium = sv_number(110, 165, typical = c(130, 146), missing = 138),
    stay = sv_number(1, 60, typical = c(2, 15), transform = "log1p"),
    site = "hospital", scale = scale
  )
}

small_schema <- function() {
  sv_schema(
    label = sv_classes("readmitted", positive = "yes", negative = "no"),
    age = sv_number(18, 100, typical = c(45, 85)),
    sex = sv_levels("female", "male"), site = "hospital"
  )
}

read_stays <- function(rows = -1) {
  file <- system.file("extdata", "hospitals.csv.gz", package = "sottovoce")
  read.csv(file, na.strings = "", nrows = rows)
}

skip_without_program <- function() {
  testthat::skip_if_not(sv_available(), "the program sottovoce is not installed")
}

# What the command line prints, as R reads it.
command_json <- function(...) {
  jsonlite::fromJSON(sottovoce:::sottovoce(c(...)), simplifyVector = FALSE)
}
