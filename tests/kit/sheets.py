"""Workbooks for tests, as little of Excel's format as a reader needs."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any
from xml.sax.saxutils import escape

DATE, MOMENT = 1, 2  # styles
STYLES = (
    '<styleSheet><numFmts><numFmt numFmtId="164" formatCode="yyyy\\-mm\\-dd hh:mm"/></numFmts>'
    '<cellXfs><xf numFmtId="0"/><xf numFmtId="14"/><xf numFmtId="164"/></cellXfs></styleSheet>'
)
MAIN = (
    '<workbook xmlns:r="r"><workbookPr/><sheets><sheet name="Rows" r:id="rId1"/>'
    '<sheet name="Notes" r:id="rId2"/></sheets></workbook>'
)
LINKS = (
    '<Relationships><Relationship Id="rId1" Target="worksheets/sheet1.xml"/>'
    '<Relationship Id="rId2" Target="/xl/worksheets/sheet2.xml"/></Relationships>'
)


def letters(j: int) -> str:
    """A column's name: 0 ↦ A, 26 ↦ AA."""
    return letters(j // 26 - 1) + chr(65 + j % 26) if j >= 26 else chr(65 + j)


def workbook(rows: Sequence[Sequence[Any]], **parts: str) -> bytes:
    """The bytes of an .xlsx with such rows; None is no cell."""
    texts = list(dict.fromkeys(v for row in rows for v in row if isinstance(v, str)))
    lines = ""
    for i, row in enumerate(rows, 1):
        cells = (_cell(value, f"{letters(j)}{i}", texts) for j, value in enumerate(row))
        lines += f'<row r="{i}">{"".join(cells)}</row>'
    shared = "".join(f"<si><t>{escape(text)}</t><rPh><t>x</t></rPh></si>" for text in texts)
    all_parts = {
        "xl/workbook.xml": MAIN,
        "xl/_rels/workbook.xml.rels": LINKS,
        "xl/styles.xml": STYLES,
        "xl/sharedStrings.xml": f"<sst>{shared}</sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet><sheetData>{lines}</sheetData></worksheet>",
        "xl/worksheets/sheet2.xml": "<worksheet/>",
    } | parts
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as book:
        for name, text in all_parts.items():
            book.writestr(name, text)
    return file.getvalue()


def _cell(value: Any, name: str, texts: list[str]) -> str:
    at = f'r="{name}"'
    if value is None:
        return ""
    if isinstance(value, bool):
        return f'<c {at} t="b"><v>{int(value)}</v></c>'
    if isinstance(value, str):
        return f'<c {at} t="s"><v>{texts.index(value)}</v></c>'
    if isinstance(value, date):
        moment = value if isinstance(value, datetime) else datetime(*value.timetuple()[:3])
        days = (moment - datetime(1899, 12, 30)).total_seconds() / 86400
        style = MOMENT if isinstance(value, datetime) else DATE
        return f'<c {at} s="{style}"><v>{days!r}</v></c>'
    return f"<c {at}><v>{value!r}</v></c>"
