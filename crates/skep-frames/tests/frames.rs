//! What the text of packets promises.

mod oracle;

use etherparse::{NetSlice, SlicedPacket, TransportSlice};
use oracle::keeps;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use skep_frames::{Error, build, fields, side_by_side, text, vocabulary};

/// A text for each layer and what may be around it.
const TEXTS: &[&str] = &[
    "eth()",
    "eth(dst=ff:ff:ff:ff:ff:ff)/arp(op=reply,spa=10.0.0.7)",
    "eth()/vlan(pcp=3,id=7)/ip4()/udp()/\"query\"",
    "eth()/qinq(id=100)/vlan(id=7)/ip6()/tcp(flags=S,options=[mss(1440),sackok,ts(5,0),nop,wscale(7)])",
    "eth()/ip4(flags=D,ttl=1,options=[alert(0)])/icmp(id=1,seq=2)/\"abcdefgh\"",
    "eth()/ip4(id=9,flags=M)/udp()/zeros(24)",
    "eth()/ip4(frag=100,proto=udp)/hex(000102)",
    "eth()/ip6()/hopopts(data=hex(050200000100))/routing(type=4,left=1,data=hex(00000000))/fragment(id=3)/udp()/\"x\"",
    "eth()/ip6(hop=255)/ns(target=fe80::1)/sll(mac=02:00:00:00:00:09)",
    "eth()/ip6(hop=255)/na(flags=OSR)/tll()",
    "eth()/ip6(hop=255)/rs()/ndoption(data=hex(010203040506))",
    "eth()/ip6(hop=255)/ra(lifetime=0)/sll()/ndmtu(mtu=9000)/ndprefix(bits=48)",
    "eth()/ip6()/icmp6(type=too-big,seq=1280)/ip6()/udp(sum=0x0001)",
    "eth()/ip4()/gre(key=77,seq=5)/ip4(src=192.168.0.1)/tcp(flags=SA)",
    "eth()/ip4()/gre()/eth()/ip4()/udp()",
    "eth()/ip4()/udp()/vxlan(vni=42)/eth()/ip4()/icmp()",
    "eth()/mpls(label=100)/mpls(label=200)/ip6()/tcp()",
    "eth()/ip4()/ip4(src=172.16.0.1)/ip6()/udp()/\"in in in\"",
    "eth()/ip6()/dstopts(data=hex(010400000000))/ah(spi=0x00000010,data=hex(00112233))/tcp(flags=0)",
    "eth()/ip4()/udp()/\"short\"/pad(000000000000000000)",
    "eth()/ip4(len=1,sum=0xdead)/tcp(off=3)",
];

#[test]
fn a_text_without_fields_is_a_packet_that_somebody_else_finds_right() {
    let bytes =
        build("eth/ip4(src=192.0.2.1,dst=198.51.100.7)/tcp(sport=1234,dport=443,flags=S,seq=7)/\"hello\"")
            .unwrap();
    let sliced = SlicedPacket::from_ethernet(&bytes).unwrap();
    let Some(NetSlice::Ipv4(ip)) = &sliced.net else { panic!("{:?}", sliced.net) };
    let header = ip.header();
    assert_eq!(header.source_addr().octets(), [192, 0, 2, 1]);
    assert_eq!(header.to_header().calc_header_checksum(), header.header_checksum());
    assert_eq!(usize::from(header.total_len()), bytes.len() - 14);
    let Some(TransportSlice::Tcp(tcp)) = &sliced.transport else { panic!("no TCP") };
    assert_eq!((tcp.source_port(), tcp.destination_port(), tcp.syn(), tcp.ack()), (1234, 443, true, false));
    let sum = tcp.to_header().calc_checksum_ipv4(&header.to_header(), tcp.payload()).unwrap();
    assert_eq!(sum, tcp.checksum());
    assert_eq!(tcp.payload(), b"hello");
}

#[test]
fn checksums_of_ipv6_are_those_that_somebody_else_computes() {
    let bytes = build("eth/ip6/hopopts(data=hex(050200000000))/udp(dport=53)/\"odd\"").unwrap();
    let sliced = SlicedPacket::from_ethernet(&bytes).unwrap();
    let Some(NetSlice::Ipv6(ip)) = &sliced.net else { panic!("{:?}", sliced.net) };
    assert_eq!(usize::from(ip.header().payload_length()), bytes.len() - 54);
    let Some(TransportSlice::Udp(udp)) = &sliced.transport else { panic!("no UDP") };
    let sum = udp.to_header().calc_checksum_ipv6(&ip.header().to_header(), udp.payload()).unwrap();
    assert_eq!((sum, udp.length()), (udp.checksum(), 11));

    let bytes = build("eth/ip6/icmp6(id=1,seq=2)/\"ping\"").unwrap();
    let sliced = SlicedPacket::from_ethernet(&bytes).unwrap();
    let Some(NetSlice::Ipv6(ip)) = &sliced.net else { panic!("{:?}", sliced.net) };
    let Some(TransportSlice::Icmpv6(icmp)) = &sliced.transport else { panic!("no ICMPv6") };
    let header = ip.header();
    let addresses = (header.source(), header.destination());
    assert!(icmp.is_checksum_valid(addresses.0, addresses.1));
}

#[test]
fn bytes_become_the_text_that_they_were_built_of() {
    for text_of in TEXTS {
        let bytes = build(text_of).unwrap_or_else(|error| panic!("{text_of}: {error}"));
        assert_eq!(text(&bytes), *text_of);
    }
}

#[test]
fn a_given_field_stays_even_if_it_is_wrong() {
    let bytes = build("eth()/ip4(len=9,sum=0x1234,ihl=15)/udp(len=3,sum=0)").unwrap();
    assert_eq!((bytes[14], &bytes[16..18], &bytes[24..26]), (0x4f, &[0, 9][..], &[0x12, 0x34][..]));
    assert_eq!((&bytes[38..40], &bytes[40..42]), (&[0, 3][..], &[0, 0][..]));
}

#[test]
fn a_cut_packet_ends_early_and_its_lengths_do_not_know() {
    let whole = build("eth()/ip4()/tcp()").unwrap();
    let cut = build("eth()/ip4()/tcp()/cut(40)").unwrap();
    assert_eq!(cut, whole[..40]);
    assert_eq!(build(&text(&cut)).unwrap(), cut);
}

#[test]
fn an_error_names_column_and_remedy() {
    for (text, said) in [
        ("eht()", "column 1: there is no layer eht; did you mean eth?"),
        ("eth()/ip4(scr=1.2.3.4)", "column 11: ip4 has no field scr; did you mean src?"),
        ("eth()/ip4(ttl=256)", "column 15: \"256\" is no value for ip4.ttl: expected a number from 0 to 255"),
        ("eth()/ip4(ttl=1,ttl=2)", "column 17: ip4.ttl is given twice; remove one of them"),
        ("eth() ip4()", "column 7: expected `/` and the next layer, or the end, found \"ip4()\""),
        ("eth()/", "column 7: expected a layer, text in quotes, or hex(...), found the end"),
        ("eth()/hex(123)", "column 11: expected an even number of hexadecimal digits, found \"123\""),
        ("eth()/\"open", "column 12: expected the quote that ends the text, found the end"),
        (
            "eth(src=1:2)",
            "column 9: \"1:2\" is no value for eth.src: expected an address like 02:00:00:00:00:01",
        ),
        ("eth()/pad(00)/ip4()", "column 14: expected the end: pad and cut come last"),
    ] {
        assert!(
            build(text).unwrap_err().to_string().starts_with(said),
            "{text}: {}",
            build(text).unwrap_err()
        );
    }
    let many = vec!["ip4()"; 40].join("/");
    assert!(matches!(build(&many), Err(Error::TooDeep { .. })));
    assert!(matches!(build("zeros(65599)/zeros(1)"), Err(Error::TooLong { column: 14, .. })));
    let long = format!("eth()/ip4()/tcp(options=[hex({})])", "01".repeat(41));
    assert!(matches!(build(&long), Err(Error::HeaderTooLong { bytes: 64, most: 60, .. })));
    let options = build("eth()/ip4()/tcp(options=[nop,mss(99999)])").unwrap_err();
    assert_eq!(options.column(), 30, "{options}");
}

#[test]
fn fields_cover_the_packet_and_say_what_would_be_usual() {
    for text in TEXTS {
        let bytes = build(text).unwrap();
        let listed = fields(&bytes);
        let bits: usize = listed.iter().map(|field| field.bits).sum();
        assert!(bits <= 8 * bytes.len(), "{text}: a bit in two fields");
        let end = listed.iter().map(|field| field.bit + field.bits).max().unwrap();
        assert_eq!(end, 8 * bytes.len(), "{text}");
        assert!(listed.iter().all(|field| !field.value.is_empty()));
    }
    let bytes = build("eth()/ip4(sum=0x1234)/udp()").unwrap();
    let sum = fields(&bytes).into_iter().find(|field| field.layer == "ip4" && field.name == "sum").unwrap();
    assert_eq!((sum.bit, sum.value.as_str(), sum.usual.is_some()), (8 * 24, "0x1234", true));
}

#[test]
fn packets_side_by_side_are_paired_by_layer() {
    let left = build("eth()/vlan(id=5)/ip4(ttl=64)/tcp(dport=80)/\"same\"").unwrap();
    let right = build("eth()/ip4(ttl=63)/tcp(dport=80)/\"same\"").unwrap();
    let table = side_by_side(&left, &right);
    let differing: Vec<_> =
        table.rows.iter().filter(|row| row.differs()).map(|row| (row.layer, &*row.name)).collect();
    let expected = [
        ("eth", "type"),
        ("vlan", "pcp"),
        ("vlan", "dei"),
        ("vlan", "id"),
        ("vlan", "type"),
        ("ip4", "ttl"),
        ("ip4", "sum"),
    ];
    assert_eq!(differing, expected);
    assert!(!side_by_side(&left, &left).differs());
    let shown = table.headings("before", "after").to_string();
    assert!(shown.lines().next().unwrap().contains("before"), "{shown}");
    assert!(shown.contains("ip4.ttl"), "{shown}");
}

/// A packet's text with some fields given at random.
fn any_text() -> impl Strategy<Value = String> {
    let layer = (
        any::<prop::sample::Index>(),
        prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
    );
    let layers = prop::collection::vec(layer, 0..6);
    let payload = prop::collection::vec(any::<u8>(), 0..40);
    (layers, payload).prop_map(|(layers, payload)| {
        let known = vocabulary();
        let mut text = "eth()".to_owned();
        for (layer, given) in layers {
            let (name, fields) = &known[layer.index(known.len())];
            let mut written = std::collections::BTreeMap::new();
            for (field, value) in given {
                let field = fields[field.index(fields.len())];
                let addresses = matches!(field, "options" | "data" | "target" | "prefix" | "spa" | "tpa");
                let numbers = !addresses && (!name.starts_with("ip") || !matches!(field, "src" | "dst"));
                if numbers {
                    written.insert(field, value & 1);
                }
            }
            let written: Vec<_> = written.iter().map(|(field, value)| format!("{field}={value}")).collect();
            text.push_str(&format!("/{name}({})", written.join(",")));
        }
        let digits: String = payload.iter().map(|byte| format!("{byte:02x}")).collect();
        format!("{text}/hex({digits})")
    })
}

/// A packet with some of its bytes changed, and cut somewhere.
fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let changes = prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4);
    (any::<prop::sample::Index>(), changes, any::<prop::sample::Index>()).prop_map(|(which, changes, cut)| {
        let mut bytes = build(TEXTS[which.index(TEXTS.len())]).unwrap();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        let keep = bytes.len() - cut.index(bytes.len()) / 4;
        bytes.truncate(keep);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(1), cases: 512, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_have_a_text_that_builds_them(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        keeps(&bytes);
    }

    #[test]
    fn damaged_packets_have_a_text_that_builds_them(bytes in damaged()) {
        keeps(&bytes);
    }

    #[test]
    fn what_a_text_builds_has_a_text_that_builds_it(text in any_text()) {
        keeps(&build(&text).unwrap());
    }

    #[test]
    fn any_text_is_a_packet_or_an_error_in_it(text in "[a-z0-9()/=,\"\\[\\]. ]{0,60}") {
        oracle::reads(&text);
    }
}
