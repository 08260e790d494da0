"""The charts' theme is the design's: its colours are read from the tokens, its font is there."""

import re

import altair as alt
import pandas as pd
import vl_convert

from sakura import charts


def test_colours_are_the_tokens() -> None:
    light, dark = charts.colours(), charts.colours(dark=True)
    assert light["sys-sakura"] == "#C4246B" and dark["sys-sakura"] == "#FF8FB0"
    assert light.keys() == dark.keys()
    assert all(re.fullmatch("#[0-9A-Fa-f]{6}", value) for value in (*light.values(), *dark.values()))


def test_systems_keep_their_order_and_colours_when_some_are_missing() -> None:
    colour, shape = charts.system_scales(["uncompressed", "intq"])
    assert colour.domain == shape.domain == ["intq", "uncompressed"]
    assert colour.range == [charts.colours()["sys-intq"], charts.colours()["sys-full"]]


def test_every_shape_can_be_drawn() -> None:
    table = pd.DataFrame({"system": list(charts.SYSTEMS), "x": range(len(charts.SYSTEMS))})
    colour, shape = charts.system_scales(list(table["system"]))
    chart = alt.layer(
        alt.Chart(table)
        .mark_point()
        .encode(x="x", color=alt.Color("system", scale=colour), shape=alt.Shape("system", scale=shape)),
        charts.label(alt.Chart(table).encode(x="x"), "system:N", alt.value("#000000")),
    )
    vl_convert.register_font_directory(str(charts.FONTS))
    svg = vl_convert.vegalite_to_svg(charts.themed(chart).to_json())
    assert "Atkinson Hyperlegible Next" in svg
    assert svg.count('aria-roledescription="point"') == len(charts.SYSTEMS)
    assert charts.colours()["sk-surface"].lower() in svg.lower()


def test_a_theme_leaves_the_chart_as_it_was() -> None:
    chart = alt.layer(alt.Chart(pd.DataFrame({"x": [1]})).mark_point().encode(x="x"))
    before = chart.to_dict()
    assert charts.themed(chart, dark=True).to_dict()["config"]["background"] == charts.colours(dark=True)["sk-surface"]
    assert chart.to_dict() == before


def test_line_ends() -> None:
    table = pd.DataFrame({"system": ["a", "a", "b"], "x": [2, 1, 3], "y": [5, 6, 7]})
    assert charts.line_ends(table, "x", ["system"])["y"].tolist() == [5, 7]
