"""The version of Weft, as the package metadata has it."""

VERSION = "0.2.0"
