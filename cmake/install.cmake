# Install rules, written with the install test.
