"""The page on which a browser is given the API key that Temporal's Web UI then shows payloads with. Pure."""

from html import escape
from typing import Final

_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Payloads in Temporal's Web UI - Horarium</title>
<style>
body {{ font: 16px/1.5 system-ui, sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }}
body {{ color: #1f2328; background: #fff }}
input {{ font: inherit; width: 100%; box-sizing: border-box; padding: .4rem .6rem; margin: .3rem 0 .8rem }}
button {{ font: inherit; padding: .4rem 1rem }}
[role=status] {{ border-left: 4px solid #0969da; padding: .3rem .8rem }}
[role=alert] {{ border-left: 4px solid #cf222e; padding: .3rem .8rem }}
@media (prefers-color-scheme: dark) {{ body {{ color: #e6edf3; background: #0d1117 }} }}
</style>
</head>
<body>
<h1>Payloads in Temporal's Web UI</h1>
{notice}
<form method="post" action="/codec/key">
<label for="key">API key, scope <code>read</code> or more</label>
<input id="key" name="key" type="password" autocomplete="off" required>
<button>Use this key</button>
</form>
{forget}
<p>The Web UI then shows the payloads of the key's tenant, and no other's, in this browser and until it is closed. In the Web UI,
under <em>Codec server</em> (the glasses at the top), the endpoint is this page's address, with
<em>Include cross-origin credentials</em> on.</p>
</body>
</html>
"""

_FORGET: Final = """<form method="post" action="/codec/key"><button>Forget the key</button></form>"""


def codec_page(*, key_id: str | None, is_on: bool, problem: str = "") -> str:
    """Write the page. ``key_id`` names the key that the browser has; ``problem`` is what was wrong with one just given."""
    return _PAGE.format(notice=_notice(key_id, is_on=is_on, problem=problem), forget=_FORGET if key_id else "")


def _notice(key_id: str | None, *, is_on: bool, problem: str) -> str:
    if problem:
        return f'<p role="alert">{escape(problem)}</p>'
    if not is_on:
        return '<p role="status">Payloads are not encrypted here: there is nothing to show.</p>'
    if key_id is None:
        return '<p role="status">This browser has no key.</p>'
    return f'<p role="status">This browser has key <code>{escape(key_id)}</code>.</p>'
