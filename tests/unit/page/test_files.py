"""Files of the page: what a gateway serves, and one file for a recording."""

import base64
import hashlib
import json
import re

import pytest

from berth.page.files import CONTENT_POLICY, INDEX, MAIN, SCRIPT, STYLE, joined, page_files, recording_page, sources

FILES = sources()
MODULES = {name: text for name, text in FILES.items() if name.endswith(".js")}


def parts(page: str) -> tuple[str, str, str]:
    """Style, data and script of a recording page."""
    found = re.fullmatch(
        r".*<style>(.*)</style>\n<script type=\"application/json\" id=\"recording\">(.*)</script>\n"
        r"<script type=\"module\">(.*)</script>\n</head>.*",
        page,
        re.DOTALL,
    )
    assert found is not None
    return found[1], found[2], found[3]


def digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def test_the_page_is_a_document_a_style_sheet_and_a_script_of_all_modules() -> None:
    found = page_files()
    assert {name: file.media_type for name, file in found.items()} == {
        INDEX: "text/html; charset=utf-8",
        STYLE: "text/css; charset=utf-8",
        SCRIPT: "text/javascript; charset=utf-8",
    }
    assert found[SCRIPT].content.decode() == joined(MODULES, MAIN)
    document = found[INDEX].content.decode()
    assert re.findall(r'(?:src|href)="assets/([^"]+)"', document) == [STYLE, SCRIPT]


def test_nothing_is_loaded_from_another_host() -> None:
    addresses = {name: re.findall(r"(?:https?:)?//[\w.-]+\.\w+", text) for name, text in FILES.items()}
    assert {name: found for name, found in addresses.items() if set(found) - {"http://www.w3.org"}} == {}
    assert "http" not in CONTENT_POLICY


def test_no_module_reads_data_as_html_or_code() -> None:
    pattern = re.compile(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function")
    assert {name: pattern.findall(text) for name, text in MODULES.items() if pattern.search(text)} == {}


def test_every_module_is_part_of_a_recording_page() -> None:
    script = joined(MODULES, MAIN)
    assert set(re.findall(r"^const module_(\w+) = ", script, re.MULTILINE)) == {
        name.removesuffix(".js") for name in MODULES
    }
    assert re.search(r"^(?:import|export)\b", script, re.MULTILINE) is None


def test_the_policy_of_a_recording_page_permits_its_own_style_and_script_alone() -> None:
    page = recording_page(b'{"title": "a day"}').decode()
    style, data, script = parts(page)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', page)
    assert f"script-src {digest(script)};" in policy
    assert f"style-src {digest(style)};" in policy
    assert policy.startswith("default-src 'none';")
    assert json.loads(data) == {"title": "a day"}
    assert page.index("Content-Security-Policy") < page.index("<style>") < page.index('<script type="module">')


def test_data_of_a_recording_never_ends_its_element() -> None:
    hostile = {"title": "</script><script>alert(1)</script><!-- <script>", "\u2028": "\u2029"}
    _, data, _ = parts(recording_page(json.dumps(hostile).encode()).decode())
    assert "<" not in data
    assert json.loads(data) == hostile


def test_modules_are_joined_after_those_that_they_import() -> None:
    modules = {
        "main.js": 'import { double } from "./two.js";\n\nconsole.log(double(one));\n',
        "two.js": 'import { one } from "./one.js";\n\nexport function double(x) {\n  return x + one;\n}\n',
        "one.js": "export const one = 1;\n",
        "unused.js": "export const none = 0;\n",
    }
    script = joined(modules, "main.js")
    assert script == (
        "const module_one = (() => {\nconst one = 1;\n\nreturn { one };\n})();\n"
        "const module_two = (() => {\nconst { one } = module_one;\n\nfunction double(x) {\n  return x + one;\n}\n\n"
        "return { double };\n})();\n"
        "const module_main = (() => {\nconst { double } = module_two;\n\nconsole.log(double(one));\n\nreturn {  };\n})();\n"
    )


@pytest.mark.parametrize(
    ("modules", "error"),
    [
        ({"main.js": 'import { x } from "./gone.js";\n'}, "import of main.js is gone.js, expected one of"),
        ({}, "import of the page is main.js, expected one of"),
        (
            {
                "main.js": 'import { x } from "./other.js";\n',
                "other.js": 'import { y } from "./main.js";\nexport const x = 1;\n',
            },
            "imports are main.js -> other.js -> main.js, expected no circle",
        ),
        ({"main.js": 'import x from "./other.js";\n'}, "expected an import or export in one line"),
        ({"main.js": "export default 1;\n"}, "expected an import or export in one line"),
    ],
)
def test_what_cannot_be_joined_is_refused(modules: dict[str, str], error: str) -> None:
    with pytest.raises(ValueError, match=re.escape(error)):
        joined(modules, "main.js")
