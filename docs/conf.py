"""Sphinx settings."""

import unmask

project = "unmask"
author = "The unmask developers"
copyright = "2026, the unmask developers"  # noqa: A001
version = release = unmask.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode"]
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
autodoc_typehints = "description"
autodoc_member_order = "bysource"
html_theme = "furo"
exclude_patterns = ["_build"]
