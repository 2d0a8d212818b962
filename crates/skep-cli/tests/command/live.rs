//! `skep attach` over pairs of Ethernet devices in a network namespace of each test.
//!
//! Frames go through sockets in order, so that a frame was dropped shows by the next one that comes instead of it.

use crate::{command, from_output, object, skep};
use serde_json::Value;
use skep_testkit::{AF_XDP, Caught, Raw, has_sockets, in_network, ip, skip};
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdout, Stdio};

/// The EtherType that the test's program looks for.
const EXPERIMENT: u16 = 0x88b5;
const ONE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const TWO: [u8; 6] = [2, 0, 0, 0, 0, 2];
const PASS: u8 = 0;
const DROP: u8 = 1;
const BACK: u8 = 2;
const ELSEWHERE: u8 = 3;

/// A frame with a command for the test's program, and a number to tell it from others.
fn frame(to: [u8; 6], from: [u8; 6], order: u8, number: u8) -> Vec<u8> {
    let mut frame = [to, from].concat();
    frame.extend(EXPERIMENT.to_be_bytes());
    frame.extend([order, number]);
    frame.resize(64, 0xa5);
    frame
}

fn plain(bytes: Vec<u8>) -> Caught {
    Caught { bytes, tag: None }
}

/// `skep attach` on the test's program, attached. It ends by itself, if the test does not end it.
struct Attached {
    child: Child,
    out: BufReader<ChildStdout>,
    first: Value,
}

impl Attached {
    fn start(program: &str, options: &[&str]) -> Self {
        let mut command = command();
        command.args(["attach", &object("live"), "--prog", program, "--json"]);
        if !options.contains(&"--seconds") {
            command.args(["--seconds", "100"]);
        }
        command.args(options).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        out.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut error = String::new();
            child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
            panic!("not attached: {error}");
        }
        let first: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(first["event"], "attached");
        Self { child, out, first }
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits until it has ended. Returns its totals, exit status, and what it said on standard error.
    fn end(mut self) -> (Value, Option<i32>, String) {
        let lines: Vec<String> = self.out.by_ref().lines().map(Result::unwrap).collect();
        let totals: Value = serde_json::from_str(lines.last().expect("totals")).unwrap();
        assert_eq!(totals["event"], "totals");
        let mut error = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
        (totals, self.child.wait().unwrap().code(), error)
    }

    /// Ends it as Ctrl-C does.
    fn interrupt(self) -> Value {
        self.signal(rustix::process::Signal::INT);
        let (totals, status, error) = self.end();
        assert_eq!((status, &*error), (Some(0), ""));
        totals
    }
}

/// Whether TAP devices can be made; otherwise it reports that `what` is skipped.
fn has_tap(what: &str) -> bool {
    let has = std::path::Path::new("/dev/net/tun").exists();
    if !has {
        skip(what, "there is no /dev/net/tun");
    }
    has
}

/// The same for AF_XDP sockets.
fn has_xdp(what: &str) -> bool {
    let has = has_sockets(AF_XDP);
    if !has {
        skip(what, "no AF_XDP socket can be made");
    }
    has
}

/// How often the program counted something.
fn seen(totals: &Value, key: u8) -> u64 {
    let key = key.to_string();
    let elements = totals["maps"].as_array().unwrap().iter().find(|map| map["name"] == "seen").unwrap();
    let elements = elements["elements"].as_array().unwrap();
    elements
        .iter()
        .find(|element| element["key"] == key)
        .map_or(0, |element| element["value"].as_u64().unwrap())
}

/// The index of an interface of this thread's namespace.
fn index(name: &str) -> u64 {
    let shown: Value = serde_json::from_str(&ip(&format!("-j link show dev {name}"))).unwrap();
    shown[0]["ifindex"].as_u64().unwrap()
}

#[test]
fn frames_are_answered_redirected_and_dropped_by_verdict() {
    in_network("an XDP program on live traffic", &[("a", "b"), ("c", "d")], || {
        let target = format!("target={}", index("c"));
        let attached = Attached::start("live", &["--dev", "a", "--dev", "c", "--set", &target]);
        assert_eq!(attached.first["devices"][1]["ifindex"], index("c"));
        let (b, d) = (Raw::open("b"), Raw::open("d"));
        for (order, number) in [(PASS, 1), (DROP, 2), (BACK, 3), (ELSEWHERE, 4), (DROP, 5), (BACK, 6)] {
            b.send(&frame(ONE, TWO, order, number));
        }
        // What passes or is dropped comes from nowhere; what is sent back has its addresses exchanged.
        assert_eq!(b.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, 3)));
        assert_eq!(b.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, 6)));
        assert_eq!(d.receive(EXPERIMENT), plain(frame(ONE, TWO, ELSEWHERE, 4)));
        // Frames come in on both.
        d.send(&frame(ONE, TWO, BACK, 7));
        assert_eq!(d.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, 7)));
        let totals = attached.interrupt();
        assert_eq!(totals["verdicts"]["drop"], 2);
        assert_eq!(totals["verdicts"]["tx"], 3);
        assert_eq!(totals["verdicts"]["redirect"], 1);
        assert_eq!(totals["sent"], 4);
        assert_eq!([PASS, DROP, BACK, ELSEWHERE].map(|order| seen(&totals, order)), [1, 2, 3, 1]);
        assert_eq!(totals["devices"][0]["sent"], 2);
        assert_eq!(totals["devices"][1]["sent"], 2);
        assert!(totals.get("not_sent").is_none(), "{totals}");
    });
}

#[test]
fn a_redirection_to_an_interface_that_is_not_attached_is_counted() {
    in_network("a redirection to nowhere", &[("a", "b")], || {
        let attached = Attached::start("live", &["--dev", "a", "--set", "target=77"]);
        let b = Raw::open("b");
        b.send(&frame(ONE, TWO, ELSEWHERE, 1));
        b.send(&frame(ONE, TWO, BACK, 2));
        assert_eq!(b.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, 2)));
        let totals = attached.interrupt();
        assert_eq!(totals["not_sent"]["redirected to an interface that is not attached"], 1);
    });
}

#[test]
fn tags_that_the_system_took_out_are_in_the_frame_or_beside_it() {
    in_network("VLAN tags on live traffic", &[("a", "b")], || {
        for program in ["live", "classify"] {
            let attached = Attached::start(program, &["--dev", "a"]);
            let b = Raw::open("b");
            let mut tagged = frame(ONE, TWO, BACK, 1);
            tagged.splice(12..12, [0x81, 0x00, 0x60, 0x07]);
            b.send(&tagged);
            b.send(&frame(ONE, TWO, BACK, 2));
            let with_tag = Caught { bytes: frame(TWO, ONE, BACK, 1), tag: Some((0x8100, 0x6007)) };
            assert_eq!(b.receive(EXPERIMENT), with_tag, "{program}");
            assert_eq!(b.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, 2)), "{program}");
            let totals = attached.interrupt();
            assert_eq!(seen(&totals, 7), 1, "{program} saw the tag");
        }
    });
}

#[test]
fn checksums_that_were_left_to_the_device_are_complete_when_a_program_sends_the_frame() {
    in_network("checksums on live traffic", &[("a", "b")], || {
        let attached = Attached::start("live", &["--dev", "a"]);
        let b = Raw::open("b");
        let mut sent = frame(ONE, TWO, BACK, 1);
        sent.truncate(34);
        // The sum begins at byte 34, as in UDP over IPv4: two words, the field with the pseudo header's sum, and a
        // word.
        sent.extend([0x12, 0x34, 0x00, 0x01, 0x00, 0x10, 0xff, 0x00]);
        sent.resize(64, 0);
        b.send_unfinished(&sent, 34, 38);
        let mut expected = frame(TWO, ONE, BACK, 1);
        expected.splice(34.., sent[34..].iter().copied());
        // 0x1234 + 0x0001 + 0x0010 + 0xff00 = 0x11145, with its carry 0x1146
        expected[38..40].copy_from_slice(&(!0x1146_u16).to_be_bytes());
        assert_eq!(b.receive(EXPERIMENT), plain(expected));
        attached.interrupt();
    });
}

#[test]
fn a_tap_device_and_an_uplink_are_a_bump_in_the_wire() {
    if !has_tap("a bump in the wire") {
        return;
    }
    in_network("a bump in the wire", &[("a", "b")], || {
        for program in ["live", "classify"] {
            let options = ["--mode", "tap", "--dev", "bump", "--uplink", "a", "--set", "target=77"];
            let attached = Attached::start(program, &options);
            skep_testkit::wait_for_link("bump");
            let (host, peer) = (Raw::open("bump"), Raw::open("b"));
            for (from, to) in [(&host, &peer), (&peer, &host)] {
                from.send(&frame(ONE, TWO, DROP, 1));
                from.send(&frame(ONE, TWO, ELSEWHERE, 2));
                from.send(&frame(ONE, TWO, PASS, 3));
                assert_eq!(to.receive(EXPERIMENT), plain(frame(ONE, TWO, PASS, 3)), "{program}");
            }
            // A program of XDP sends back to where a frame came from.
            if program == "live" {
                host.send(&frame(ONE, TWO, BACK, 4));
                assert_eq!(host.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, 4)));
            }
            let totals = attached.interrupt();
            assert_eq!([PASS, DROP, ELSEWHERE].map(|order| seen(&totals, order)), [2, 2, 2], "{program}");
            assert!(ip("-o link").lines().all(|line| !line.contains("bump")), "the device is gone");
        }
    });
}

#[test]
fn the_frames_of_a_queue_are_taken_and_passed_on_to_a_device() {
    if !has_tap("AF_XDP with a TAP device") || !has_xdp("AF_XDP") {
        return;
    }
    in_network("AF_XDP", &[("a", "b"), ("c", "d")], || {
        let (kernel, target) = (Raw::open("a"), format!("target={}", index("c")));
        let options = ["--mode", "afxdp", "--dev", "a", "--dev", "c", "--set", &target];
        let attached = Attached::start("live", &options);
        let (b, d) = (Raw::open("b"), Raw::open("d"));
        for (order, number) in [(PASS, 1), (DROP, 2), (BACK, 3), (ELSEWHERE, 4), (BACK, 5)] {
            b.send(&frame(ONE, TWO, order, number));
        }
        assert_eq!(b.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, 3)));
        assert_eq!(b.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, 5)));
        assert_eq!(d.receive(EXPERIMENT), plain(frame(ONE, TWO, ELSEWHERE, 4)));
        // More than there is memory for at once.
        for number in 0..3000 {
            b.send(&frame(ONE, TWO, BACK, number as u8));
            assert_eq!(b.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, number as u8)));
        }
        let totals = attached.interrupt();
        assert_eq!([PASS, DROP, BACK, ELSEWHERE].map(|order| seen(&totals, order)), [1, 1, 3002, 1]);
        // The kernel has had none of them, and has those that come now.
        b.send(&frame(ONE, TWO, PASS, 99));
        assert_eq!(kernel.receive(EXPERIMENT), plain(frame(ONE, TWO, PASS, 99)));

        let options = ["--mode", "afxdp", "--dev", "a", "--queue", "0", "--tap", "host"];
        let attached = Attached::start("live", &options);
        skep_testkit::wait_for_link("host");
        let host = Raw::open("host");
        for (from, to) in [(&b, &host), (&host, &b)] {
            from.send(&frame(ONE, TWO, DROP, 1));
            from.send(&frame(ONE, TWO, PASS, 2));
            assert_eq!(to.receive(EXPERIMENT), plain(frame(ONE, TWO, PASS, 2)));
        }
        let second =
            ["attach", &object("live"), "--prog", "live", "--mode", "afxdp", "--dev", "a", "--seconds", "9"];
        let second = from_output(&command().args(second).output().unwrap());
        second.refused(1, &["the interface a has an XDP program, or an AF_XDP socket"]);
        attached.interrupt();
        let queue =
            ["attach", &object("live"), "--prog", "live", "--mode", "afxdp", "--dev", "a", "--queue", "99"];
        from_output(&command().args(queue).output().unwrap()).refused(1, &["a has no queue 99", "ethtool"]);
    });
}

#[test]
fn a_number_of_frames_and_a_signal_end_the_run_with_totals() {
    in_network("the end of a run on live traffic", &[("a", "b")], || {
        let attached = Attached::start("live", &["--dev", "a", "--count", "3"]);
        let b = Raw::open("b");
        for number in 0..5 {
            b.send(&frame(ONE, TWO, DROP, number));
        }
        let (totals, status, _) = attached.end();
        assert_eq!((status, &totals["packets"]), (Some(0), &3.into()));
        let attached = Attached::start("live", &["--dev", "a", "--interp"]);
        attached.signal(rustix::process::Signal::TERM);
        let (totals, status, _) = attached.end();
        assert_eq!((status, &totals["engine"]), (Some(0), &"interpreter".into()));
        let attached = Attached::start("live", &["--dev", "a", "--seconds", "1"]);
        assert_eq!(attached.end().1, Some(0));
    });
}

#[test]
fn an_interface_that_disappears_ends_the_run_with_totals_and_the_reason() {
    in_network("an interface that disappears", &[("a", "b"), ("c", "d")], || {
        for (mode, here, there) in [("afpacket", "a", "b"), ("afxdp", "c", "d")] {
            if mode == "afxdp" && !has_xdp("an interface that disappears under AF_XDP") {
                continue;
            }
            let attached = Attached::start("live", &["--dev", here, "--mode", mode]);
            let peer = Raw::open(there);
            peer.send(&frame(ONE, TWO, BACK, 1));
            assert_eq!(peer.receive(EXPERIMENT), plain(frame(TWO, ONE, BACK, 1)), "{mode}");
            ip(&format!("link del dev {here}"));
            let (totals, status, error) = attached.end();
            assert_eq!((status, &totals["verdicts"]["tx"]), (Some(1), &1.into()), "{mode}");
            let expected = format!("the interface {here} went down or was removed during the run");
            assert!(error.contains(&expected), "{error}");
        }
    });
}

#[test]
fn an_interface_that_disappears_ends_a_run_that_shows_nothing_meanwhile() {
    in_network("the end of a run without counts", &[("a", "b")], || {
        if !has_xdp("an interface that disappears under AF_XDP") {
            return;
        }
        let mut command = command();
        command.args(["attach", &object("live"), "--prog", "live", "--seconds", "100", "--dev", "a"]);
        let mut child =
            command.args(["--mode", "afxdp"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        let mut error = String::new();
        said.read_line(&mut error).unwrap();
        assert!(error.contains("runs on frames of a"), "{error}");
        ip("link del dev a");
        said.read_to_string(&mut error).unwrap();
        assert_eq!(child.wait().unwrap().code(), Some(1), "{error}");
        assert!(error.contains("the interface a went down or was removed during the run"), "{error}");
    });
}

#[test]
fn a_reader_that_closes_the_pipe_ends_the_run() {
    in_network("a closed pipe", &[("a", "b")], || {
        let Attached { mut child, out, .. } = Attached::start("live", &["--dev", "a"]);
        drop(out);
        assert_eq!(child.wait().unwrap().code(), Some(0));
    });
}

#[test]
fn interfaces_that_cannot_be_used_are_refused_with_a_remedy() {
    in_network("refused interfaces", &[("a", "b")], || {
        let attach = |options: &[&str]| {
            let mut command = command();
            command.args(["attach", &object("live"), "--prog", "live", "--seconds", "100"]);
            from_output(&command.args(options).output().unwrap())
        };
        attach(&["--dev", "eth7"])
            .refused(1, &["no network interface \"eth7\"", "there are", "a", "b", "lo"]);
        attach(&["--dev", "lo"]).refused(1, &["lo is down", "ip link set lo up"]);
        attach(&["--dev", "a", "--dev", "a"]).refused(1, &["a is given twice"]);
        if has_tap("a TAP device with the name of another one") {
            attach(&["--mode", "tap", "--dev", "a"])
                .refused(1, &["a is in use by another process, or is no TAP"]);
        }
        attach(&["--mode", "tap", "--dev", "much too long a name"]).refused(1, &["1 to 15 bytes"]);
        attach(&["--mode", "tap", "--dev", "x", "--dev", "y"]).refused(2, &["--uplink"]);
        attach(&["--dev", "a", "--uplink", "b"]).refused(2, &["--mode tap"]);
    });
}

#[test]
fn programs_that_do_not_run_on_frames_are_refused() {
    let attach = |options: &[&str]| skep(&[&["attach", &object("live"), "--prog", "live"], options].concat());
    attach(&["--dev", "lo", "--type", "raw"])
        .refused(2, &["raw", "xdp, sched_cls, sched_act, socket_filter"]);
    attach(&[]).refused(2, &["--dev"]);
}
