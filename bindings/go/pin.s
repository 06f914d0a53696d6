// Empty: a package with functions without a body (pin.go) needs an assembly file.
