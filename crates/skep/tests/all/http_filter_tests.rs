//! The example with plug-ins for HTTP requests: its plug-in does what its comments say, in both engines.

use super::{Action, Changes, Client, HttpRequest, PLUGIN, runtime};
use skep::{Engine, Object};

/// The verdict, the body, the priority and the changes.
fn ask(path: &str, body: &str, client: Option<&Client>) -> (Action, String, u32, Changes) {
    let runtime = runtime().unwrap();
    let filter =
        runtime.load(&Object::open(PLUGIN).unwrap()).unwrap().typed::<HttpRequest<'_>>("filter").unwrap();
    let answer = |engine| {
        let mut body = body.as_bytes().to_vec();
        let (headers, changes) = (&b"Host: example.org"[..], Changes::default());
        let mut request =
            HttpRequest { method: "POST", path, headers, body: &mut body, client, priority: 1, changes };
        let action = filter.run_with(engine, &mut request).unwrap();
        let (priority, changes) = (request.priority, request.changes);
        (action, String::from_utf8(body).unwrap(), priority, changes)
    };
    let (compiled, interpreted) = (answer(Engine::Jit), answer(Engine::Interpreter));
    assert_eq!(format!("{compiled:?}"), format!("{interpreted:?}"));
    compiled
}

#[test]
fn strangers_stay_out_of_the_administration() {
    let client = |verified| Client { address: [7; 16], verified };
    assert_eq!(ask("/admin/users", "", None).0, Action::Deny);
    assert_eq!(ask("/admin", "", Some(&client(false))).0, Action::Deny);
    let (action, _, priority, _) = ask("/admin", "", Some(&client(true)));
    assert_eq!((action, priority), (Action::Allow, 10));
    assert_eq!(ask("/admi", "", None).0, Action::Allow, "a shorter path is not read past its end");
    assert_eq!(ask("", "", None).0, Action::Allow);
}

#[test]
fn paths_are_rewritten_and_headers_set_through_functions_of_the_host() {
    assert_eq!(ask("/v1/items", "", None).3.path.as_deref(), Some("/v2/items"));
    assert_eq!(ask("/v3/items", "", None).3.path, None);
    let (action, _, _, changes) = ask("/old", "", None);
    assert_eq!(action, Action::Redirect);
    assert_eq!(changes.headers, [("Location".to_owned(), "/new".to_owned())]);
}

#[test]
fn card_numbers_are_hidden_in_place() {
    assert_eq!(ask("/", "card=4111 1111", None).1, "card=**** ****");
    assert_eq!(ask("/", "card=", None).1, "card=");
    assert_eq!(ask("/", "cash=4111", None).1, "cash=4111");
}
