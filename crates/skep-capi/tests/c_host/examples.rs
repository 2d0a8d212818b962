//! The examples in C and C++ compile without warnings, and do what they say.

use crate::hosts::{example, install, pc};
use crate::toolchain::{compiler, cpp, root, run, scratch};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

#[test]
fn the_firewall_blocks_what_it_is_told() {
    let Some(mut firewall) = built("run_firewall") else { return };
    let said = run(firewall.arg(example("firewall")).args(["10.0.0.1", "203.0.113.9"]));
    assert_eq!(said, "10.0.0.1: drop\n203.0.113.9: drop\n10.0.0.7: pass\n");
    let said = firewall.arg("no address").output().unwrap();
    assert!(!said.status.success());
}

#[test]
fn helpers_get_data_and_return_errors() {
    let Some(mut helpers) = built("helpers") else { return };
    let said = run(helpers.arg(example("c/helpers")));
    assert_eq!(said, "packet 1: verdict 2\npacket 2: verdict 1\npacket 3: verdict 2\nleft: 50 and 1000\n");
    let Some(mut helpers) = built("helpers") else { return };
    let header = run(helpers.arg("--header"));
    assert!(header.contains("account_of") && header.contains("(void *) 1001"), "{header}");
}

#[test]
fn events_come_through_epoll() {
    let Some(mut events) = built("events") else { return };
    let said = run(events.arg(example("c/events")).arg("3"));
    assert_eq!(said, "packet 1: 61 bytes\npacket 2: 62 bytes\npacket 3: 63 bytes\n");
}

#[test]
fn a_proxy_asks_its_policy_which_is_replaced_while_it_serves() {
    let Some(mut proxy) = built("proxy") else { return };
    let backends = ["first", "second"].map(backend);
    proxy.arg(example("c/policy")).args(backends.iter().map(|(port, _)| port.to_string()));
    let mut proxy = proxy.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    let mut commands = proxy.stdin.take().expect("it is piped");
    let mut said = BufReader::new(proxy.stdout.take().expect("it is piped")).lines();
    let mut line = || said.next().expect("the proxy goes on").unwrap();
    let first = line();
    let port = first.strip_prefix("listening on ").and_then(|port| port.parse().ok()).expect("a port");

    // Capitals and exclamation marks mean nothing to the first policy.
    assert_eq!(ask(port, "HELLO"), "first: HELLO");
    commands.write_all(b"policy doorman\n").unwrap();
    assert_eq!(line(), "policy doorman");
    assert_eq!(ask(port, "HELLO"), "second: HELLO");
    assert_eq!(ask(port, "!HELLO"), "");
    commands.write_all(b"counters\n").unwrap();
    assert_eq!(line(), "denied 1, first 1, second 1");
    commands.write_all(b"policy nobody\n").unwrap();
    assert!(line().contains("it has open_door, doorman"));
    drop(commands);
    assert!(proxy.wait().unwrap().success());
    for (_, backend) in backends {
        backend.join().unwrap();
    }
}

/// A server that answers one request with its name, and its port.
fn backend(name: &'static str) -> (u16, std::thread::JoinHandle<()>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = move || {
        let (mut connection, _) = listener.accept().unwrap();
        let mut request = String::new();
        connection.read_to_string(&mut request).unwrap();
        write!(connection, "{name}: {request}").unwrap();
    };
    (port, std::thread::spawn(serve))
}

/// The answer to a request through the proxy.
fn ask(port: u16, request: &str) -> String {
    let mut connection = TcpStream::connect(("127.0.0.1", port)).unwrap();
    connection.write_all(request.as_bytes()).unwrap();
    connection.shutdown(Shutdown::Write).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn the_firewall_runs_from_cpp() {
    let Some(mut compiler) = cpp() else { return };
    let prefix = scratch("example-cpp");
    install(&prefix);
    if skep_testkit::is_emulated() {
        // The compiler is the machine's own: it checks the source, and links nothing for another architecture.
        run(compiler.arg("-fsyntax-only").arg(source("run_firewall.cpp")).args(pc(&prefix, &["Cflags"])));
        return;
    }
    let program = prefix.join("run_firewall");
    run(compiler
        .arg("-o")
        .arg(&program)
        .arg(source("run_firewall.cpp"))
        .args(pc(&prefix, &["Cflags", "Libs"])));
    let mut firewall = started(&program, &prefix);
    assert_eq!(run(firewall.arg(example("firewall"))), "0 bytes: verdict 1\n60 bytes: verdict 2\n");
}

/// An example, compiled; `None` if that may be skipped.
fn built(name: &str) -> Option<Command> {
    let mut compiler = compiler()?;
    let prefix = scratch(&format!("example-{name}"));
    install(&prefix);
    let program = prefix.join(name);
    compiler.arg("-pthread").arg("-o").arg(&program).arg(source(&format!("{name}.c")));
    run(compiler.args(pc(&prefix, &["Cflags", "Libs"])));
    Some(started(&program, &prefix))
}

fn started(program: &Path, prefix: &Path) -> Command {
    let mut command = skep_testkit::other(program);
    command.env("LD_LIBRARY_PATH", prefix.join("lib"));
    command
}

fn source(name: &str) -> PathBuf {
    root().join("examples/c").join(name)
}
