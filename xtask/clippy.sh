#!/bin/sh
# The compiler of workspace packages in `make test`: clippy's lints with the compilation, once.
#
# Unit tests of a library contain the whole library again. They are compiled without optimisation,
# which takes 40 % of the time; they run for seconds. Integration tests (crate `it`) compute more,
# and use the library as its profile says. So do the unit tests of `synthetic`, a small crate; tidy
# parses all sources.
case " $* " in
*" --crate-name it "* | *" --crate-name synthetic "*) ;;
*" --crate-name tidy "*) set -- "$@" -Copt-level=1 ;;
*" --test "*) set -- "$@" -Copt-level=0 ;;
esac
exec clippy-driver "$@"
