//! Messages of netlink(7): requests as a process sent them, and answers.
//!
//! Nothing in a request is trusted: lengths that do not fit end it.

/// `struct nlmsghdr`, and the one of attributes.
const HEADER: usize = 16;
const ATTRIBUTE: usize = 4;
/// Bits of an attribute's type that are not the type.
const TYPE: u16 = 0x3fff;
/// Answers to one request are sent in parts of this size, which fit the smallest buffer that clients have.
const PART: usize = 3584;

/// `NLM_F_*`
pub(super) const ACK: u16 = 4;
pub(super) const ECHO: u16 = 8;
pub(super) const DUMP: u16 = 0x300;
pub(super) const EXCLUSIVE: u16 = 0x200;
pub(super) const CREATE: u16 = 0x400;
const MULTI: u16 = 2;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// Messages below this number are not for anybody.
const CONTROL: u16 = 16;

/// The name of a kind of message, or its number.
pub(super) fn name(kind: u16) -> String {
    /// By what they are about, in the order of their numbers from 16 on, four each.
    const ABOUT: [&str; 8] = ["LINK", "ADDR", "ROUTE", "NEIGH", "RULE", "QDISC", "TCLASS", "TFILTER"];
    const WHAT: [&str; 4] = ["NEW", "DEL", "GET", "SET"];
    let (about, what) = (usize::from(kind - CONTROL.min(kind)) / 4, usize::from(kind) % 4);
    ABOUT.get(about).map_or_else(|| kind.to_string(), |about| format!("RTM_{}{about}", WHAT[what]))
}

/// A request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Request<'a> {
    pub(super) kind: u16,
    pub(super) flags: u16,
    pub(super) sequence: u32,
    /// What follows the header.
    pub(super) body: &'a [u8],
    whole: &'a [u8],
}

/// A number of four or two bytes at an offset.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
}

pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
}

/// The requests in what was sent at once.
pub(super) fn requests(bytes: &[u8]) -> impl Iterator<Item = Request<'_>> {
    let mut rest = bytes;
    let all = std::iter::from_fn(move || {
        let len = u32_at(rest, 0)? as usize;
        let whole = rest.get(..len).filter(|whole| whole.len() >= HEADER)?;
        let request = Request {
            kind: u16_at(whole, 4)?,
            flags: u16_at(whole, 6)?,
            sequence: u32_at(whole, 8)?,
            body: &whole[HEADER..],
            whole,
        };
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        Some(request)
    });
    all.filter(|request| request.kind >= CONTROL)
}

/// Attributes: types and contents.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Attributes<'a>(&'a [u8]);

impl<'a> Attributes<'a> {
    /// Those behind a structure of that size.
    pub(super) fn behind(body: &'a [u8], size: usize) -> Self {
        Self(body.get(size..).unwrap_or_default())
    }

    fn all(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let mut rest = self.0;
        std::iter::from_fn(move || {
            let len = usize::from(u16_at(rest, 0)?);
            let contents = rest.get(ATTRIBUTE..len)?;
            let kind = u16_at(rest, 2)? & TYPE;
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
            Some((kind, contents))
        })
    }

    /// The last one of a type, as in Linux.
    pub(super) fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.all().filter(|(found, _)| *found == kind).map(|(_, contents)| contents).last()
    }

    pub(super) fn number(self, kind: u16) -> Option<u32> {
        u32_at(self.get(kind)?, 0)
    }

    /// A text, which may end with zero.
    pub(super) fn text(self, kind: u16) -> Option<&'a [u8]> {
        self.get(kind)?.split(|byte| *byte == 0).next()
    }

    /// The attributes in one.
    pub(super) fn nested(self, kind: u16) -> Option<Self> {
        self.get(kind).map(Self)
    }
}

/// Messages for a process.
#[derive(Debug)]
pub(super) struct Answer {
    parts: Vec<Vec<u8>>,
    /// The process's address.
    port: u32,
}

/// A message, or an attribute in it, that is not complete.
#[must_use]
pub(super) struct Open(usize);

impl Answer {
    pub(super) fn new(port: u32) -> Self {
        Self { parts: Vec::new(), port }
    }

    /// What is sent, in order.
    pub(super) fn parts(&self) -> &[Vec<u8>] {
        &self.parts
    }

    fn part(&mut self) -> &mut Vec<u8> {
        if self.parts.last().is_none_or(|part| part.len() > PART / 2) {
            self.parts.push(Vec::new());
        }
        let last = self.parts.len() - 1;
        &mut self.parts[last]
    }

    fn message(&mut self, request: &Request<'_>, kind: u16, flags: u16, body: &[u8]) -> Open {
        let port = self.port;
        let part = self.part();
        let begin = part.len();
        part.extend_from_slice(&0u32.to_ne_bytes());
        part.extend_from_slice(&kind.to_ne_bytes());
        part.extend_from_slice(&flags.to_ne_bytes());
        part.extend_from_slice(&request.sequence.to_ne_bytes());
        part.extend_from_slice(&port.to_ne_bytes());
        part.extend_from_slice(body);
        Open(begin)
    }

    /// Begins a message about one thing, which begins with a structure.
    pub(super) fn begin(&mut self, request: &Request<'_>, kind: u16, body: &[u8]) -> Open {
        let flags = if request.flags & DUMP == DUMP { MULTI } else { 0 };
        self.message(request, kind, flags, body)
    }

    /// Completes a message.
    pub(super) fn end(&mut self, Open(begin): Open) {
        if let Some(part) = self.parts.last_mut() {
            let len = (part.len() - begin) as u32;
            part[begin..begin + 4].copy_from_slice(&len.to_ne_bytes());
        }
    }

    /// An attribute of the message that was begun last.
    pub(super) fn attribute(&mut self, kind: u16, contents: &[u8]) {
        if let Some(part) = self.parts.last_mut() {
            part.extend_from_slice(&((ATTRIBUTE + contents.len()) as u16).to_ne_bytes());
            part.extend_from_slice(&kind.to_ne_bytes());
            part.extend_from_slice(contents);
            part.resize(part.len().next_multiple_of(4), 0);
        }
    }

    pub(super) fn number(&mut self, kind: u16, number: u32) {
        self.attribute(kind, &number.to_ne_bytes());
    }

    pub(super) fn text(&mut self, kind: u16, text: &str) {
        self.attribute(kind, &[text.as_bytes(), &[0]].concat());
    }

    /// Begins an attribute that has attributes.
    pub(super) fn nest(&mut self, kind: u16) -> Open {
        let begin = self.parts.last().map_or(0, Vec::len);
        self.attribute(kind, &[]);
        Open(begin)
    }

    pub(super) fn end_nest(&mut self, Open(begin): Open) {
        if let Some(part) = self.parts.last_mut() {
            let len = (part.len() - begin) as u16;
            part[begin..begin + 2].copy_from_slice(&len.to_ne_bytes());
        }
    }

    /// The end of an answer: an error, which repeats the request; or what tells that all is done.
    pub(super) fn finish(&mut self, request: &Request<'_>, error: i32) {
        let dump = request.flags & DUMP == DUMP && error == 0;
        if !dump && error == 0 && request.flags & ACK == 0 {
            return;
        }
        let (kind, flags) = if dump { (NLMSG_DONE, MULTI) } else { (NLMSG_ERROR, 0) };
        let mut body = (-error).to_ne_bytes().to_vec();
        match (dump, error) {
            (true, _) => {}
            (false, 0) => body.extend_from_slice(&request.whole[..HEADER]),
            (false, _) => body.extend_from_slice(&request.whole[..request.whole.len().min(PART)]),
        }
        let message = self.message(request, kind, flags, &body);
        self.end(message);
        if let Some(part) = self.parts.last_mut() {
            part.resize(part.len().next_multiple_of(4), 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_made_is_understood() {
        let whole = [20u32.to_ne_bytes(), 0x0305_0012u32.to_ne_bytes(), 7u32.to_ne_bytes(), [0; 4], [9; 4]];
        let bytes = whole.concat();
        let request = requests(&bytes).next().unwrap();
        assert_eq!(
            (request.kind, request.flags, request.sequence, request.body),
            (18, 0x305, 7, &[9; 4][..])
        );
        let mut answer = Answer::new(77);
        let message = answer.begin(&request, 16, &[1; 16]);
        answer.text(3, "eth0");
        let nest = answer.nest(43);
        answer.number(4, 5);
        answer.end_nest(nest);
        answer.end(message);
        answer.finish(&request, 0);
        assert_eq!(answer.parts().len(), 1);
        let made: Vec<Request<'_>> = requests(&answer.parts()[0]).collect();
        assert_eq!(made.len(), 1, "what ends it is a message of control");
        let attributes = Attributes::behind(made[0].body, 16);
        assert_eq!(attributes.text(3), Some(&b"eth0"[..]));
        assert_eq!(attributes.nested(43).unwrap().number(4), Some(5));
        assert_eq!(attributes.number(99), None);
    }

    #[test]
    fn kinds_have_the_names_of_the_interface() {
        let names: Vec<_> = [16, 19, 26, 38, 46, 48].map(name).into();
        let expected = ["RTM_NEWLINK", "RTM_SETLINK", "RTM_GETROUTE", "RTM_GETQDISC", "RTM_GETTFILTER", "48"];
        assert_eq!(names, expected);
    }

    #[test]
    fn lengths_that_do_not_fit_end_what_was_sent() {
        for len in [0u32, 15, 17, 4000, u32::MAX] {
            let bytes = [len.to_ne_bytes(), [18, 0, 0, 0], [0; 4], [0; 4]].concat();
            assert_eq!(requests(&bytes).count(), 0, "{len}");
        }
        for len in [0u16, 3, 9, u16::MAX] {
            let bytes = [&len.to_ne_bytes()[..], &[1, 0, 5, 5, 5, 5]].concat();
            assert!(Attributes(&bytes).get(1).is_none(), "{len}");
        }
    }
}
