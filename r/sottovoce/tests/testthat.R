library(testthat)
library(sottovoce)

test_check("sottovoce")
