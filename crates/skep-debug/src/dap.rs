//! The Debug Adapter Protocol, by which editors talk to debuggers (Microsoft, version 1.x).
//!
//! ```text
//!   Content-Length: 119\r\n\r\n{"seq":1,"type":"request","command":"initialize",...}
//! ```
//!
//! The answers to all requests come from a record of the run, so each is sent at once: nothing is waited for. A session
//! stays at the end of the run, from where steps lead back, until the client disconnects or goes on once more.

use crate::breakpoint::Breakpoint;
use crate::cursor::{Cursor, Way};
use crate::recording::Recording;
use crate::session::{ending, evaluate};
use serde_json::{Value as Json, json};
use std::io::{self, BufRead, Error, ErrorKind, Write};
use std::path::{Path, PathBuf};

/// The most bytes of a message.
const MOST: usize = 16 << 20;
/// The most bytes of a header's line.
const LINE: u64 = 4096;
/// The one thread.
const THREAD: u32 = 1;
/// References of scopes: registers, and the stack.
const REGISTERS: u64 = 1;
const STACK: u64 = 2;

/// What a client wants to debug: its `launch` request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Launch {
    /// The object file.
    pub object: PathBuf,
    /// The program; empty for the only one.
    pub program: String,
    /// The packet as text.
    pub packet: String,
    /// Whether to stop at the first instruction.
    pub stop_on_entry: bool,
}

/// Serves a client until it disconnects. `record` makes the run that it wants to look at.
///
/// # Errors
///
/// [`Error`] if a message is malformed, or input or output fail. Wrong requests are answered.
pub fn serve(
    input: &mut dyn BufRead,
    output: &mut dyn Write,
    record: &dyn Fn(&Launch) -> Result<Recording, String>,
) -> io::Result<()> {
    let mut client = Client { output, seq: 0 };
    let (launch, recording) = loop {
        let Some(request) = read(input)? else { return Ok(()) };
        match request.command() {
            "initialize" => client.answer(&request, Ok(capabilities()))?,
            "launch" => {
                let launch = Launch::of(&request.arguments);
                match record(&launch) {
                    Ok(recording) => {
                        client.answer(&request, Ok(Json::Null))?;
                        client.event("initialized", Json::Null)?;
                        break (launch, recording);
                    }
                    Err(error) => client.answer(&request, Err(error))?,
                }
            }
            "disconnect" | "terminate" => return client.answer(&request, Ok(Json::Null)),
            _ => client.answer(&request, Err("there is no run yet: send launch first".to_owned()))?,
        }
    };
    let folder = launch.object.parent().unwrap_or(Path::new("")).to_owned();
    let cursor = Cursor::new(&recording);
    let mut server = Server { cursor, folder, lines: Vec::new(), names: Vec::new() };
    while let Some(request) = read(input)? {
        match request.command() {
            "disconnect" | "terminate" => return client.answer(&request, Ok(Json::Null)),
            "configurationDone" => {
                client.answer(&request, Ok(Json::Null))?;
                match launch.stop_on_entry {
                    true => client.stopped("entry", "")?,
                    false => server.proceed(Way::Forward, &mut client)?,
                }
            }
            "continue" | "reverseContinue" => {
                client.answer(&request, Ok(json!({ "allThreadsContinued": true })))?;
                let way = if request.command() == "continue" { Way::Forward } else { Way::Back };
                if way == Way::Forward && server.cursor.is_at_end() {
                    client.event("terminated", Json::Null)?;
                } else {
                    server.proceed(way, &mut client)?;
                }
            }
            "next" | "stepIn" | "stepOut" | "stepBack" => {
                client.answer(&request, Ok(Json::Null))?;
                server.step(&request);
                client.stopped("step", &server.at_end())?;
            }
            _ => {
                let answer = server.answer(&request);
                client.answer(&request, answer)?;
            }
        }
    }
    Ok(())
}

/// What can be asked for.
fn capabilities() -> Json {
    json!({
        "supportsConfigurationDoneRequest": true,
        "supportsFunctionBreakpoints": true,
        "supportsStepBack": true,
        "supportsSteppingGranularity": true,
        "supportsEvaluateForHovers": true,
        "supportsTerminateRequest": true,
    })
}

impl Launch {
    fn of(arguments: &Json) -> Self {
        let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
        let hex = arguments["hex"].as_str().map(|digits| format!("hex({digits})"));
        Self {
            object: text("object").into(),
            program: text("program"),
            packet: hex.unwrap_or_else(|| text("packet")),
            stop_on_entry: arguments["stopOnEntry"].as_bool().unwrap_or(false),
        }
    }
}

/// A request.
struct Request {
    whole: Json,
    arguments: Json,
}

impl Request {
    fn command(&self) -> &str {
        self.whole["command"].as_str().unwrap_or_default()
    }
}

/// The next request; `None` at the end of input. Other messages are passed over.
fn read(input: &mut dyn BufRead) -> io::Result<Option<Request>> {
    let wrong = |what: &str| Error::new(ErrorKind::InvalidData, format!("a message of the client: {what}"));
    loop {
        let mut length = None;
        loop {
            let mut line = Vec::new();
            io::Read::take(&mut *input, LINE).read_until(b'\n', &mut line)?;
            if line.is_empty() && length.is_none() {
                return Ok(None);
            }
            if !line.ends_with(b"\n") {
                return Err(wrong("its header has no end"));
            }
            let line = String::from_utf8_lossy(&line);
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            if let Some(digits) = line.strip_prefix("Content-Length:") {
                let number = digits.trim().parse::<usize>().ok().filter(|length| *length <= MOST);
                length = Some(number.ok_or_else(|| wrong("its length is no number up to 16 MiB"))?);
            }
        }
        let length = length.ok_or_else(|| wrong("its header has no Content-Length"))?;
        let mut body = vec![0; length];
        input.read_exact(&mut body)?;
        let whole: Json = serde_json::from_slice(&body).map_err(|error| wrong(&error.to_string()))?;
        if whole["type"] == "request" {
            let arguments = whole["arguments"].clone();
            return Ok(Some(Request { whole, arguments }));
        }
    }
}

/// Whom answers and events are for.
struct Client<'a> {
    output: &'a mut dyn Write,
    seq: u64,
}

impl Client<'_> {
    fn send(&mut self, mut message: Json) -> io::Result<()> {
        self.seq += 1;
        message["seq"] = self.seq.into();
        let text = message.to_string();
        write!(self.output, "Content-Length: {}\r\n\r\n{text}", text.len())?;
        self.output.flush()
    }

    fn answer(&mut self, request: &Request, answer: Result<Json, String>) -> io::Result<()> {
        let mut message = json!({
            "type": "response",
            "request_seq": request.whole["seq"],
            "command": request.command(),
            "success": answer.is_ok(),
        });
        match answer {
            Ok(Json::Null) => {}
            Ok(body) => message["body"] = body,
            Err(text) => message["message"] = text.into(),
        }
        self.send(message)
    }

    fn event(&mut self, event: &str, body: Json) -> io::Result<()> {
        let mut message = json!({ "type": "event", "event": event });
        if !body.is_null() {
            message["body"] = body;
        }
        self.send(message)
    }

    fn stopped(&mut self, reason: &str, description: &str) -> io::Result<()> {
        let mut body = json!({ "reason": reason, "threadId": THREAD, "allThreadsStopped": true });
        if !description.is_empty() {
            body["description"] = description.into();
            body["text"] = description.into();
        }
        self.event("stopped", body)
    }
}

/// A run and where the client looks.
struct Server<'a> {
    cursor: Cursor<'a>,
    /// Where the object is, and often its sources.
    folder: PathBuf,
    /// Breakpoints at lines, and by name.
    lines: Vec<(usize, Breakpoint)>,
    names: Vec<(usize, Breakpoint)>,
}

impl Server<'_> {
    fn proceed(&mut self, way: Way, client: &mut Client<'_>) -> io::Result<()> {
        let all = [&self.lines[..], &self.names[..]].concat();
        match self.cursor.proceed(way, &all) {
            Some(_) => client.stopped("breakpoint", ""),
            None if way == Way::Back => client.stopped("entry", "the beginning of the run"),
            None => client.stopped("pause", &self.at_end()),
        }
    }

    fn step(&mut self, request: &Request) {
        let instruction = request.arguments["granularity"] == "instruction";
        match request.command() {
            "stepOut" => self.cursor.finish(Way::Forward),
            "stepBack" if instruction => self.cursor.instruction(Way::Back),
            "stepBack" => self.cursor.source(Way::Back, true),
            _ if instruction => self.cursor.instruction(Way::Forward),
            "next" => self.cursor.source(Way::Forward, true),
            _ => self.cursor.source(Way::Forward, false),
        };
    }

    /// How the run ended, at its end.
    fn at_end(&self) -> String {
        if self.cursor.is_at_end() { ending(self.cursor.recording()) } else { String::new() }
    }

    fn answer(&mut self, request: &Request) -> Result<Json, String> {
        let arguments = &request.arguments;
        match request.command() {
            "setBreakpoints" => {
                let path = arguments["source"]["path"].as_str().unwrap_or_default();
                let file = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
                self.lines.retain(|(_, known)| {
                    !matches!(known, Breakpoint::Line { file: Some(known), .. } if *known == file)
                });
                let wanted = arguments["breakpoints"].as_array().cloned().unwrap_or_default();
                let set: Vec<Json> = wanted
                    .iter()
                    .map(|wanted| {
                        let line = wanted["line"].as_u64().unwrap_or(0);
                        match Breakpoint::parse(&format!("{file}:{line}"), self.cursor.recording()) {
                            Ok(breakpoint) => {
                                self.lines.push((self.lines.len() + 1, breakpoint));
                                json!({ "verified": true, "line": line })
                            }
                            Err(text) => json!({ "verified": false, "line": line, "message": text }),
                        }
                    })
                    .collect();
                Ok(json!({ "breakpoints": set }))
            }
            "setFunctionBreakpoints" => {
                self.names.clear();
                let wanted = arguments["breakpoints"].as_array().cloned().unwrap_or_default();
                let set: Vec<Json> = wanted
                    .iter()
                    .map(|wanted| {
                        let name = wanted["name"].as_str().unwrap_or_default();
                        match Breakpoint::parse(name, self.cursor.recording()) {
                            Ok(breakpoint) => {
                                self.names.push((self.names.len() + 1, breakpoint));
                                json!({ "verified": true })
                            }
                            Err(text) => json!({ "verified": false, "message": text }),
                        }
                    })
                    .collect();
                Ok(json!({ "breakpoints": set }))
            }
            "setExceptionBreakpoints" => Ok(json!({ "breakpoints": [] })),
            "threads" => {
                let name = self.cursor.recording().program.name();
                Ok(json!({ "threads": [{ "id": THREAD, "name": name }] }))
            }
            "stackTrace" => Ok(self.frames()),
            "scopes" => Ok(json!({ "scopes": [
                { "name": "Registers", "variablesReference": REGISTERS, "expensive": false, "presentationHint": "registers" },
                { "name": "Stack", "variablesReference": STACK, "expensive": false },
            ] })),
            "variables" => Ok(self.variables(arguments["variablesReference"].as_u64().unwrap_or(0))),
            "evaluate" => {
                let expression = arguments["expression"].as_str().unwrap_or_default();
                let value = evaluate(self.cursor.step(), expression.trim())?;
                Ok(json!({ "result": format!("{value} ({value:#x})"), "variablesReference": 0 }))
            }
            other => Err(format!("the request {other:?} is not supported")),
        }
    }

    /// The functions in progress, the innermost first.
    fn frames(&self) -> Json {
        let program = self.cursor.recording().verified();
        let frames = self.cursor.step().frames.iter().rev().zip(1..);
        let frame = |(frame, id): (&crate::recording::Frame, u32)| {
            let line = program.lines().partition_point(|line| line.slot <= frame.slot).checked_sub(1);
            let line = line.map(|line| &program.lines()[line]);
            let mut shown = json!({
                "id": id,
                "name": program.functions()[frame.function].name,
                "line": line.map_or(0, |line| line.line),
                "column": line.map_or(0, |line| line.column),
            });
            if let Some(line) = line {
                let path = self.source(&line.file);
                shown["source"] = json!({
                    "name": path.file_name().map(|name| name.to_string_lossy()),
                    "path": path.to_string_lossy(),
                });
            }
            shown
        };
        let frames: Vec<Json> = frames.map(frame).collect();
        json!({ "totalFrames": frames.len(), "stackFrames": frames })
    }

    /// Where a source is: as the compiler named it, or beside the object.
    fn source(&self, name: &str) -> PathBuf {
        let named = Path::new(name);
        let beside = named.file_name().map(|file| self.folder.join(file));
        let places = [Some(named.to_owned()), Some(self.folder.join(named)), beside];
        let found = places.into_iter().flatten().find_map(|path| path.canonicalize().ok());
        found.unwrap_or_else(|| named.to_owned())
    }

    fn variables(&self, of: u64) -> Json {
        let step = self.cursor.step();
        let variable = |name: String, value: u64| json!({ "name": name, "value": format!("{value:#x} ({value})"), "variablesReference": 0 });
        let variables: Vec<Json> = match of {
            REGISTERS => {
                let registers = step.registers.iter().enumerate();
                registers.map(|(index, value)| variable(format!("r{index}"), *value)).collect()
            }
            STACK => {
                let words = step.stack.as_chunks::<8>().0;
                let used = words.iter().enumerate().rev().filter(|(_, word)| **word != [0; 8]);
                let name = |index: usize| format!("r10 - {}", 8 * (words.len() - index));
                used.map(|(index, word)| variable(name(index), u64::from_ne_bytes(*word))).collect()
            }
            _ => Vec::new(),
        };
        json!({ "variables": variables })
    }
}
