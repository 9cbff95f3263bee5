module hactl.dev/tests/csr

go 1.24
