"""The report's page: styles for light and dark, and how its pictures become plotly's.

One file that needs nothing else: plotly.js is inlined. Who has no JavaScript sees the PNG files
that lie next to it. Colours of texts and axes are those of the page, also when the reader's system
changes between light and dark; on a narrow page legends go below the picture.
"""

from __future__ import annotations

import html
from typing import Any, Final

from omqtools.omqspark import interactive
from omqtools.omqspark.topmost import LIGHTER

STYLE: Final = """
:root{color-scheme:light dark;--ink:#222;--paper:#fff;--line:#ddd;--faint:#555;--code:#f2f2f2;
--ok:#e3f4ea;--bad:#fbe5e0}
@media(prefers-color-scheme:dark){:root{--ink:#ddd;--paper:#161a1d;--line:#3a4045;--faint:#a5abb0;
--code:#262c30;--ok:#17352a;--bad:#43231c}}
body{font:15px/1.5 system-ui,sans-serif;max-width:1120px;margin:2em auto;padding:0 1em;
color:var(--ink);background:var(--paper);overflow-wrap:break-word}
h1{font-size:1.6em}h2{margin-top:2em;border-bottom:1px solid var(--line)}
img{max-width:100%;background:#fff}
.wide{overflow-x:auto}
table{border-collapse:collapse}
td,th{padding:.25em .8em;text-align:right;border-bottom:1px solid var(--line)}
td:first-child,th:first-child,.head td,.head th{text-align:left}.head th{white-space:nowrap}
.head td{overflow-wrap:anywhere}
code{background:var(--code);padding:0 .3em;overflow-wrap:anywhere}
.ok{background:var(--ok)}.bad{background:var(--bad)}
.verdict{padding:.6em 1em;border-radius:6px}p.note{color:var(--faint)}
@media(max-width:700px){body{margin:1em auto}td,th{padding:.25em .4em}
.wide table,.wide tbody,.wide tr,.wide td{display:block}.wide tr:first-child{display:none}
.wide tr{border-bottom:1px solid var(--line);padding:.4em 0}
.wide td{display:flex;justify-content:space-between;gap:1em;border:0;padding:.1em 0;
overflow-wrap:anywhere}.wide td::before{content:attr(data-label);color:var(--faint);flex:none}
.wide td:first-child{font-weight:bold}.wide td:first-child::before{content:none}
.head th{white-space:normal}}"""

DRAW: Final = """
const figures=FIGURES,lighter=LIGHTER;
const dark=matchMedia('(prefers-color-scheme: dark)'),narrow=matchMedia('(max-width: 700px)');
function layout(figure){
 const style=getComputedStyle(document.documentElement),ink=style.getPropertyValue('--ink').trim(),
  line=style.getPropertyValue('--line').trim(),small=narrow.matches;
 const out={...structuredClone(figure.layout),paper_bgcolor:'rgba(0,0,0,0)',
  plot_bgcolor:figure.layout.plot_bgcolor||'rgba(0,0,0,0)',font:{color:ink,size:small?11:12},
  height:figure.height+(small?120:0),
  margin:{l:60,r:10,t:36,b:40},hovermode:'closest',
  legend:small?{orientation:'h',y:-0.15}:{x:1.01,y:1}};
 for(const key of Object.keys(out))if(/^[xy]axis/.test(key))
  out[key]={gridcolor:line,zerolinecolor:line,linecolor:line,automargin:true,...out[key]};
 if(small&&out.yaxis&&out.yaxis.ticktext)
  out.yaxis.ticktext=out.yaxis.ticktext.map(text=>cut(text,28));
 return out}
const cut=(text,most)=>text.length>most?
 text.slice(0,Math.floor(most/3))+'…'+text.slice(-Math.ceil(most*2/3)):text;
const tone=colour=>dark.matches&&lighter[colour]||colour;
function toned(trace){
 const out=structuredClone(trace);
 for(const part of [out.line,out.marker,out.node])if(part&&part.color)
  part.color=Array.isArray(part.color)?part.color.map(tone):tone(part.color);
 if(narrow.matches&&out.node)out.node.label=out.node.label.map(text=>cut(text,14));
 return out}
function draw(){for(const [key,figure] of Object.entries(figures))
 Plotly.react(key,figure.data.map(toned),layout(figure),{responsive:true,displaylogo:false})}
draw();dark.addEventListener('change',draw);narrow.addEventListener('change',draw);"""


def picture(key: str, title: str) -> str:
    """Where a picture comes; its PNG is `key`.png."""
    name = html.escape(title)
    return (f'<div id="{key}" role="img" aria-label="{name}"></div>'
            f'<noscript><img alt="{name}" src="{key}.png"></noscript>'
            f'<p class=note><a href="{key}.png">as a picture</a></p>')


def page(body: list[str], figures: dict[str, Any]) -> str:
    """The whole file."""
    scripts = ""
    if figures:
        drawing = DRAW.replace("LIGHTER", interactive.script(LIGHTER), 1).replace(
            "FIGURES", interactive.script(figures), 1)
        scripts = f"<script>{interactive.library()}</script><script>{drawing}</script>"
    return ('<!doctype html><html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width,initial-scale=1">'
            f"<title>omq report</title><style>{STYLE}</style></head><body>{''.join(body)}{scripts}"
            "</body></html>")
