"""Sphinx's configuration of the site; ``scripts/dev docs`` builds it.

The sources are the pages where they lie in the repository, so that their links lead to the same
pages as on GitHub. Whatever the site shows comes from the repository: it loads nothing over the
network, and needs none to be built.
"""

from __future__ import annotations

from pathlib import Path

from scripts.tools.docs.site.pages import CONTENTS, PATTERNS, prepare, write_start_page
from slurm_tiresias import __version__

TYPE_CHECKING = False
if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "slurm-tiresias"
release = version = __version__
root_doc = CONTENTS
include_patterns = list(PATTERNS)
# Folders that Sphinx need not walk through: they have no pages.
exclude_patterns = [".*", "slurm_tiresias", "tests", "spank", "build", "dist", "**/__pycache__"]

extensions = ["myst_parser"]
# Every heading is an anchor with the name that GitHub gives it.
myst_heading_anchors = 6
myst_enable_extensions = ["html_image", "strikethrough"]
suppress_warnings = ["myst.strikethrough"]
# Blocks without a language are commands and what they print.
highlight_language = "none"
# "--json" is not to become a dash.
smartquotes = False

html_theme = "furo"
html_title = f"slurm-tiresias {__version__}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_search_scorer = str(Path(__file__).with_name("scorer.js"))
html_copy_source = False
html_show_copyright = False
html_show_sphinx = False
html_use_index = False
html_domain_indices = False
html_theme_options = {"navigation_with_keys": True}


def setup(app: Sphinx) -> None:
    """Register the changes to the pages."""
    app.connect("source-read", prepare)
    app.connect("build-finished", write_start_page)
