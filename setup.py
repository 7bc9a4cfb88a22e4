"""Packages; all else stands in pyproject.toml, which cannot name a folder outside of src besides those found in it."""

from setuptools import find_namespace_packages, setup

setup(packages=[*find_namespace_packages("src"), "pisa_capc.protocols"])
