//! `skep report`: pages about an object.

use crate::{Scratch, object, root, skep};
use std::path::Path;

/// The pages of a report, by name.
fn pages(folder: &Scratch) -> Vec<(String, String)> {
    let entries = std::fs::read_dir(folder.path()).unwrap().map(Result::unwrap);
    let mut pages: Vec<_> = entries
        .map(|entry| {
            (entry.file_name().into_string().unwrap(), std::fs::read_to_string(entry.path()).unwrap())
        })
        .collect();
    pages.sort();
    pages
}

fn report(name: &str, object: &str) -> Vec<(String, String)> {
    let folder = Scratch::folder(name);
    let said = skep(&["report", object, "-o", folder.path()]);
    assert_eq!(said.status, Some(0), "{}", said.err);
    pages(&folder)
}

#[test]
fn a_report_has_a_page_for_each_program_that_the_first_one_leads_to() {
    let pages = report("report-programs", "examples/socket_filter.bpf.o");
    let names: Vec<&str> = pages.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["1-keep_dns.html", "2-keep_headers.html", "index.html"]);
    for name in &names[..2] {
        assert!(pages[2].1.contains(&format!("<a href=\"{name}\">")), "{}", pages[2].1);
    }
    for (name, page) in &pages[..2] {
        for part in ["Accepted", "Control flow", "Machine code", "data:image/svg+xml,", "href=\"index.html\""]
        {
            assert!(page.contains(part), "{name} lacks {part}");
        }
    }
}

#[test]
fn pages_run_nothing_and_load_nothing() {
    for (name, page) in report("report-alone", "examples/firewall.bpf.o") {
        assert!(page.contains("default-src 'none'"), "{name}");
        for never in ["<script", "http://", "https://", "src=\"/", "url("] {
            // A drawing is data, in which every < and % is escaped.
            assert!(!page.contains(never), "{name}: {never}");
        }
    }
}

#[test]
fn names_of_an_object_are_never_markup_nor_paths() {
    let bytes = std::fs::read(root().join("examples/firewall.bpf.o")).unwrap();
    // As long as the name that it replaces, so that the file remains well-formed.
    let (old, new) = (b"\0firewall\0", b"\0<i>/../x\0");
    let mut evil = bytes.clone();
    for at in 0..bytes.len() - old.len() {
        if bytes[at..].starts_with(old) {
            evil[at..at + old.len()].copy_from_slice(new);
        }
    }
    assert_ne!(evil, bytes);
    let file = Scratch::new("evil.o", &evil);
    let pages = report("report-evil", file.path());
    let names: Vec<&str> = pages.iter().map(|(name, _)| &**name).collect();
    assert_eq!(names, ["1--i-----x.html", "index.html"]);
    for (name, page) in &pages {
        assert!(page.contains("&lt;i&gt;/../x") && !page.contains("<i>"), "{name}");
    }
}

#[test]
fn a_refused_program_has_a_page_with_the_reason() {
    let pages = report("report-refused", &object("missing_null_check"));
    assert!(pages.iter().all(|(_, page)| page.contains("r0 may be null")), "{pages:?}");
    assert!(pages.last().unwrap().1.contains("1 refused"));
}

#[test]
fn a_folder_that_cannot_be_made_is_named() {
    let file = Scratch::new("report-file", b"");
    let below = Path::new(file.path()).join("below");
    let said = skep(&["report", "examples/firewall.bpf.o", "-o", below.to_str().unwrap()]);
    said.refused(1, &["cannot make the folder", below.to_str().unwrap()]);
}
