//! How pages look, and the parts that they have in common.

use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::fmt::Write;

/// Colours follow the browser's scheme; tables scroll by themselves, so that a page never does sideways.
const STYLE: &str = "\
:root{color-scheme:light dark;--text:#1b1f24;--dim:#57606a;--line:#d0d7de;--back:#fff;--soft:#f6f8fa;--link:#0550ae;\
--good:#1a7f37;--bad:#cf222e}\
@media(prefers-color-scheme:dark){:root{--text:#e6edf3;--dim:#8b949e;--line:#30363d;--back:#0d1117;--soft:#161b22;\
--link:#79c0ff;--good:#3fb950;--bad:#f85149}}\
body{margin:0 auto;max-width:76rem;padding:1.5rem;font:15px/1.5 system-ui,sans-serif;color:var(--text);\
background:var(--back)}\
h1{font-size:1.5rem;margin:.2rem 0}h2{font-size:1.15rem;margin:2rem 0 .5rem}a{color:var(--link)}\
code,pre{font:13px/1.45 ui-monospace,monospace}pre{margin:0;padding:.7rem;background:var(--soft);overflow-x:auto}\
.wide{overflow-x:auto}table{border-collapse:collapse;width:100%}\
th,td{padding:.3rem .7rem;border-bottom:1px solid var(--line);text-align:left;vertical-align:top}\
th{color:var(--dim);font-weight:600}.n{text-align:right;white-space:nowrap}ul{margin:.2rem 0;padding-left:1.2rem}\
.source td{padding:0 .6rem;border:0;font:13px/1.45 ui-monospace,monospace}.source pre{padding:0;background:none;\
display:inline}.source p,.source ul{font:14px/1.5 system-ui,sans-serif;margin:.3rem 0}.source details pre{overflow:visible}\
.hit td.n{color:var(--good)}.missed{background:color-mix(in srgb,var(--bad) 14%,transparent)}\
.partly{background:color-mix(in srgb,#d4a72c 18%,transparent)}.dead{color:var(--dim)}\
.good,.proved{color:var(--good)}.bad{color:var(--bad)}.dim{color:var(--dim)}summary{cursor:pointer}\
figure{margin:0;overflow:auto;max-height:80vh;border:1px solid var(--line)}img{display:block;max-width:none}";

/// Nothing on a page runs or comes from elsewhere, whatever names are in the object.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src data:";

/// A whole page.
pub(super) fn document(title: &str, body: &Markup) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta http-equiv="Content-Security-Policy" content=(POLICY);
                title { (place(title)) " - skep report" }
                style { (PreEscaped(STYLE)) }
            }
            body { (body) }
        }
    }
}

/// A drawing. It is an image, so that its style stays its own.
pub(super) fn picture(words: &str, svg: &str) -> Markup {
    let mut data = String::with_capacity(svg.len() + svg.len() / 4);
    for byte in svg.bytes() {
        match byte {
            b' ' | b'-' | b'.' | b',' | b';' | b'=' => data.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => data.push(char::from(byte)),
            byte => {
                let _ = write!(data, "%{byte:02x}"); // a string takes everything
            }
        }
    }
    html! { figure { img alt=(words) src={ "data:image/svg+xml," (data) }; } }
}

/// Text from an object, with control characters made visible.
pub(super) fn place(text: &str) -> String {
    skep::escaped(text)
}

/// A number with its noun.
pub(super) fn count(number: usize, one: &str, many: &str) -> String {
    format!("{number} {}", if number == 1 { one } else { many })
}
