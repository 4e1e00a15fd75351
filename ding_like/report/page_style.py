"""Hold the style of a report's page, which asks nothing of the network."""

STYLE = """
:root { color-scheme: light dark; --page: #f4f5f7; --card: #ffffff; --ink: #1d2330; --soft: #5b6474; --line: #dfe3ea;
  --accent: #0072b2; --good: #00704f; --warn: #a04b00; --code: #f0f2f5; }
@media (prefers-color-scheme: dark) { :root { --page: #12151b; --card: #1b2029; --ink: #e6e9ef; --soft: #9aa4b5;
  --line: #313947; --accent: #56b4e9; --good: #3fc797; --warn: #f0a35e; --code: #242b36; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); line-height: 1.5;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 28px 20px 60px; }
h1 { font-size: 26px; line-height: 1.2; margin: 0 0 4px; overflow-wrap: anywhere; }
h2 { font-size: 18px; margin: 0 0 12px; }
h3 { font-size: 15px; margin: 16px 0 6px; }
p { margin: 0 0 10px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 18px 20px;
  margin-top: 18px; }
.soft { color: var(--soft); }
.badge { display: inline-block; padding: 1px 10px; border-radius: 999px; font-size: 13px; font-weight: 600;
  border: 1px solid currentColor; vertical-align: 3px; }
.good { color: var(--good); } .warn { color: var(--warn); } .going { color: var(--accent); }
.facts { display: grid; grid-template-columns: repeat(auto-fill, minmax(150px, 1fr)); gap: 12px 20px;
  margin: 16px 0 0; }
.facts div { border-left: 3px solid var(--line); padding-left: 10px; min-width: 0; }
.facts dt { color: var(--soft); font-size: 13px; }
.facts dd { margin: 0; font-size: 18px; font-weight: 600; overflow-wrap: anywhere; }
.facts dd small { display: block; font-size: 13px; font-weight: 400; color: var(--soft); }
.scroll { overflow-x: auto; } .scroll + p { margin: 12px 0 0; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: 14px; }
th, td { text-align: left; padding: 5px 12px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th { color: var(--soft); font-weight: 600; font-size: 13px; white-space: nowrap; }
td.n, th.n { text-align: right; white-space: nowrap; }
td code { white-space: normal; overflow-wrap: anywhere; } td:first-child code { white-space: nowrap; }
tr:last-child td { border-bottom: 0; }
code, pre { font: 13px/1.45 ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; }
pre { background: var(--code); border-radius: 6px; padding: 10px 12px; margin: 0 0 10px; overflow-x: auto; }
details { margin-top: 12px; }
details pre, details .scroll { max-height: 420px; overflow: auto; }
summary { cursor: pointer; color: var(--accent); }
figure { margin: 0 0 14px; }
figcaption { color: var(--soft); font-size: 13px; margin-top: 4px; }
img { max-width: 100%; height: auto; border-radius: 6px; border: 1px solid var(--line); }
svg { display: block; width: 100%; height: auto; min-width: 560px; }
svg text { fill: var(--ink); } svg text[fill="#555555"] { fill: var(--soft); }
svg rect[fill="white"] { fill: var(--card); }
svg line[stroke="#dddddd"] { stroke: var(--line); } svg line[stroke="black"] { stroke: var(--soft); }
svg line[stroke="#555555"] { stroke: var(--soft); }
@media (prefers-color-scheme: dark) { svg [stroke="#0072B2"] { stroke: #56b4e9; }
  svg [fill="#0072B2"] { fill: #56b4e9; }
  svg [stroke="#000000"] { stroke: #ffffff; } svg [fill="#000000"] { fill: #ffffff; } }
.two { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(380px, 100%), 1fr)); gap: 14px 24px; }
.two > * { min-width: 0; }
footer { color: var(--soft); font-size: 13px; margin-top: 20px; }
@media (max-width: 560px) { main { padding: 16px 10px 40px; } section { padding: 14px 12px; } h1 { font-size: 21px; }
  .facts { grid-template-columns: 1fr 1fr; } .facts dd { font-size: 16px; } }
@media print { body { background: #fff; } section { break-inside: avoid; } details { display: none; } }
"""
