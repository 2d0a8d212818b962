//! A host with plug-ins of its own: an HTTP server asks a BPF program what to do with each request. The program sees
//! the method, path, headers, body and client; it denies, redirects, rewrites the path, or sets a header.
//! `http_filter.bpf.c` is such a plug-in, and `http_filter.h` the header for its author, which `--header` prints.
//!
//!     cargo run -p skep --features derive --example http_filter
//!     cargo run -p skep --features derive --example http_filter -- --header > crates/skep/examples/http_filter.h

use skep::function::Host;
use skep::{Context, Error, Object, Runtime, Verdict};

const PLUGIN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/http_filter.bpf.o");

// ANCHOR: context
#[derive(Context)]
#[context(section = "http_filter", verdict = Action)]
struct HttpRequest<'a> {
    method: &'a str,
    path: &'a str,
    headers: &'a [u8],
    body: &'a mut [u8],
    client: Option<&'a Client>,
    #[context(write)]
    priority: u32,
    #[context(host)]
    changes: Changes,
}

#[derive(Context)]
struct Client {
    address: [u8; 16],
    verified: bool,
}

#[derive(Debug, PartialEq, Verdict)]
#[verdict(name = "http")]
enum Action {
    Allow,
    Deny,
    Redirect,
}
// ANCHOR_END: context

// ANCHOR: functions
#[derive(Debug, Default)]
struct Changes {
    path: Option<String>,
    headers: Vec<(String, String)>,
}

fn set_path(mut changes: Host<'_, Changes>, path: &[u8]) -> i32 {
    changes.path = Some(String::from_utf8_lossy(path).into_owned());
    0
}

fn set_header(mut changes: Host<'_, Changes>, name: &[u8], value: &[u8]) -> i32 {
    let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
    changes.headers.push((text(name), text(value)));
    0
}
// ANCHOR_END: functions

// ANCHOR: runtime
/// A runtime that knows the program type and its functions.
fn runtime() -> Result<Runtime, Error> {
    Runtime::builder()
        .method::<HttpRequest<'_>, _, _>("http_set_path", set_path)
        .method::<HttpRequest<'_>, _, _>("http_set_header", set_header)
        .build()
}
// ANCHOR_END: runtime

fn main() -> Result<(), Error> {
    let runtime = runtime()?;
    if std::env::args().any(|argument| argument == "--header") {
        print!("{}", runtime.context_header::<HttpRequest<'_>>()?);
        return Ok(());
    }
    // ANCHOR: run
    let filter = runtime.load(&Object::open(PLUGIN)?)?.typed::<HttpRequest<'_>>("filter")?;
    let client = Client { address: [1; 16], verified: false };
    for path in ["/index.html", "/admin/users", "/v1/items", "/old"] {
        let mut body = *b"card=4111111111111111";
        let (headers, changes) = (&b"Host: example.org\r\n"[..], Changes::default());
        let client = Some(&client);
        let mut request =
            HttpRequest { method: "GET", path, headers, body: &mut body, client, priority: 0, changes };
        let action = filter.run(&mut request)?;
        // ANCHOR_END: run
        println!("{path}: {action:?}, priority {}, {:?}", request.priority, request.changes);
        println!("    {}", String::from_utf8_lossy(&body));
    }
    Ok(())
}

/// Compiled with the tests of the crate.
#[cfg(test)]
#[path = "../tests/all/http_filter_tests.rs"]
mod tests;
