use super::super::build::{Moment, build};
use super::super::program::CompiledTemplate;
use super::*;
use crate::send::engine::Source;
use proptest::prelude::*;

fn read(text: &str) -> Template {
    Template::parse(text, "t").unwrap_or_else(|problem| panic!("{text}: {problem}"))
}

fn problem(text: &str) -> String {
    Template::parse(text, "t.frame").unwrap_err().to_string()
}

#[test]
fn a_line_and_a_file_are_the_same_template() {
    let line = read("size 64 / eth / ip dst=10.0.0.2 / udp dport=9 / stamp");
    let file = read("# a test\nsize 64\neth\n\nip dst=10.0.0.2   # where to\nudp dport=9\nstamp\n");
    assert_eq!(line, file);
    assert_eq!(line.to_string(), "size 64\neth\nip dst=10.0.0.2\nudp dport=9\nstamp\n");
    assert_eq!(read("size 64 fcs / eth").size, Some(Size::Fixed(60)));
}

#[test]
fn a_layer_stands_at_its_place_in_the_table() {
    assert!(fields::LAYERS.iter().enumerate().all(|(at, facts)| facts.kind as usize == at));
}

#[test]
fn problems_say_where_and_what_to_do() {
    for (text, wanted) in [
        (
            "eth\nip dst=10.0.0.256\n",
            "t.frame:2:4: '10.0.0.256' is not a value of dst; write an address such as",
        ),
        ("eth / ipv5", "t.frame:1:7: there is no layer 'ipv5'; the layers are eth, vlan"),
        ("eth / ip tttl=3", "t.frame:1:10: 'ip' has no field 'tttl'; the fields of ip are version"),
        ("eth / udp", "t.frame:1:7: 'udp' cannot stand here; it stands behind ip or ipv6"),
        ("ip / udp", "t.frame:1:1: 'ip' cannot stand here"),
        ("eth / ip ttl=300", "does not fit into 8 bits; the largest is 255"),
        ("eth / ip ttl=3 ttl=4", "'ttl' is set twice"),
        ("eth / ip tos=3 ecn=1", "'tos' and 'ecn' are the same bits"),
        ("size 20 / eth / ip / udp", "a frame of 20 bytes is too short for its layers, which have 42"),
        ("size 9..3 / eth", "t.frame:1:6: '9..3' is not a size; write a size such as"),
        ("eth / payload text=\"open", "a quote is not closed"),
        ("eth / ip ttl={1,2", "a bracket is not closed"),
        ("eth / payload zero / stamp", "nothing can follow a payload that fills the frame"),
        ("eth / stamp / ip", "'ip' cannot stand here"),
        ("flows 0 / eth", "flows must be at least 1"),
        ("size 64 / size 65 / eth", "'size' is given twice"),
        ("eth / ip options=9404", "cannot be options"),
        ("# nothing", "the template has no layer"),
        ("eth src", "'src' has no value"),
    ] {
        let said = problem(text);
        assert!(said.contains(wanted), "{text:?}: {said}");
        assert!(!said.contains('\n'));
    }
}

#[test]
fn a_datagram_is_what_the_builder_of_wire_makes() {
    let template = read(
        "size 100 / eth src=02:00:00:00:00:01 dst=02:00:00:00:00:02 / ip src=10.0.0.1 dst=10.0.0.2 / udp sport=7 dport=9",
    );
    let ends = wire::build::Ends {
        macs: ([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]),
        addresses: ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap()),
        ports: (7, 9),
    };
    assert_eq!(build(&template, 0, Moment::default()), wire::build::build_udp(&ends, &[0; 58]).unwrap());
    let six = read(
        "eth src=02:00:00:00:00:01 dst=02:00:00:00:00:02 / ipv6 src=fd00::1 dst=fd00::2 / icmpv6 id=5 seq=6 / payload text=\"abc\"",
    );
    let ends =
        wire::build::Ends { addresses: ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap()), ..ends };
    assert_eq!(build(&six, 0, Moment::default()), wire::build::build_echo(&ends, 5, 6, b"abc").unwrap());
}

#[test]
fn without_a_size_the_data_ends_with_the_payload_and_padding_follows() {
    let frame = build(&read("eth / ip / udp / payload hex=0102"), 0, Moment::default());
    assert_eq!(frame.len(), SHORTEST);
    let ip = wire::frame::Ipv4::parse(&frame[14..]).unwrap();
    assert_eq!(wire::frame::Udp::parse(ip.payload()).unwrap().payload(), [1, 2]);
}

#[test]
fn stamps_and_pktgen_headers_carry_number_and_time() {
    let moment = Moment { planned_ns: 77, utc_ns: 3_000_005_000 };
    let frame = build(&read("eth / ip / udp / stamp stream=4 / pktgen"), 9, moment);
    let message = wire::message::Message::read(&frame[42..]).unwrap();
    assert_eq!((message.sequence, message.planned_ns, message.stream), (9, 77, 4));
    let header = wire::pktgen::Pktgen::read(&frame[60..]).unwrap();
    assert_eq!((header.sequence, header.time_ns()), (10, Some(3_000_005_000)), "the kernel numbers from 1");
}

#[test]
fn flows_keep_their_values_and_count_their_own_frames() {
    let template = read(
        "flows 3 / eth / ip src=10.0.0.1..10.0.0.9 id=counter / tcp seq=counter(100+1460) sport={1,2} window=random@frame",
    );
    let fields = |n: u64| {
        let frame = build(&template, n, Moment::default());
        let (src, id) = (frame[29], u16::from_be_bytes([frame[18], frame[19]]));
        let seq = u32::from_be_bytes(frame[38..42].try_into().unwrap());
        (src, id, seq, frame[35], [frame[48], frame[49]])
    };
    let all: Vec<_> = (0..9).map(fields).collect();
    assert_eq!(all.iter().map(|f| f.0).collect::<Vec<_>>(), [1, 2, 3, 1, 2, 3, 1, 2, 3]);
    assert_eq!(all.iter().map(|f| f.1).collect::<Vec<_>>(), [0, 0, 0, 1, 1, 1, 2, 2, 2]);
    assert_eq!(
        all.iter().map(|f| f.2).collect::<Vec<_>>(),
        [100, 100, 100, 1560, 1560, 1560, 3020, 3020, 3020]
    );
    assert_eq!(all.iter().map(|f| f.3).collect::<Vec<_>>(), [1, 2, 1, 1, 2, 1, 1, 2, 1]);
    assert!(all.windows(2).any(|pair| pair[0].4 != pair[1].4));
}

#[test]
fn a_wrong_checksum_can_be_asked_for_and_stacks_can_be_built() {
    let frame = build(&read("eth / ip checksum=0x0000 / icmp checksum=0 id=counter"), 3, Moment::default());
    assert_eq!((&frame[24..26], &frame[36..38]), (&[0, 0][..], &[0, 0][..]));
    let text = "eth / vlan id=1..9 / mpls label=5 / mpls / ip / udp dport=4789 / payload hex=0800000000000100 / stamp";
    let frame = build(&read(text), 0, Moment::default());
    assert_eq!(&frame[12..26], [0x81, 0, 0, 1, 0x88, 0x47, 0, 0, 0x50, 64, 0, 1, 1, 64]);
    let inner = read(
        "size 120 / eth / ip / udp dport=4789 / eth / ip src=10.0.0.1..10.0.0.9 / udp sport=random / stamp",
    );
    assert_eq!(
        CompiledTemplate::new(&inner).frame(5, Moment::default()),
        build(&inner, 5, Moment::default())
    );
}

fn choice(form: Form, limit: u128) -> BoxedStrategy<Value> {
    let number = move || (0..=limit).boxed();
    let stepped = limit.min(1000);
    let choice = prop_oneof![
        number().prop_map(Choice::Constant),
        (number(), number(), 1..=stepped.max(1)).prop_map(|(a, b, step)| Choice::Range(
            a.min(b),
            a.max(b),
            step
        )),
        (number(), number()).prop_map(|(a, b)| Choice::Random(a.min(b), a.max(b))),
        prop::collection::vec(number(), 1..5).prop_map(Choice::List),
        (number(), 1..=stepped.max(1)).prop_map(|(start, step)| Choice::Counter(start, step)),
    ];
    let by = prop::option::of(prop_oneof![Just(VaryBy::Frame), Just(VaryBy::Flow), Just(VaryBy::Turn)]);
    let _ = form;
    (choice, by).prop_map(|(choice, by)| Value { choice, by }).boxed()
}

fn layer(kind: LayerKind) -> BoxedStrategy<Layer> {
    let fields: Vec<_> = kind
        .facts()
        .fields
        .iter()
        .filter(|field| field.name != "tos")
        .map(|field| {
            let limit = if field.bits == 128 { u128::MAX } else { (1 << field.bits) - 1 };
            prop::option::weighted(0.4, choice(field.form, limit))
                .prop_map(move |value| value.map(|value| (field, value)))
        })
        .collect();
    let options = if kind.has_options() { 0..4usize } else { 0..1 };
    let options = prop::collection::vec(any::<[u8; 4]>(), options).prop_map(|words| words.concat());
    (fields, options)
        .prop_map(move |(fields, options)| Layer {
            kind,
            fields: fields.into_iter().flatten().collect(),
            options,
            bytes: None,
        })
        .boxed()
}

fn data() -> BoxedStrategy<Layer> {
    let bytes = prop::collection::vec(any::<u8>(), 1..30);
    let bytes = prop_oneof![
        Just(Bytes::Zero),
        Just(Bytes::Random),
        Just(Bytes::Counter),
        bytes.clone().prop_map(Bytes::Text),
        bytes.prop_map(Bytes::Hex),
    ];
    let payload = bytes.prop_map(|bytes| Layer { bytes: Some(bytes), ..Layer::new(LayerKind::Payload) });
    prop_oneof![payload, layer(LayerKind::Stamp), layer(LayerKind::Pktgen)].boxed()
}

/// Any template whose layers stand where they may.
fn any_template() -> impl Strategy<Value = Template> {
    use LayerKind::*;
    let stacks: &[&[LayerKind]] = &[
        &[Ethernet, Ipv4, Udp],
        &[Ethernet, Ipv6, Udp],
        &[Ethernet, Vlan, Vlan, Ipv4, Tcp],
        &[Ethernet, Mpls, Mpls, Ipv6, Tcp],
        &[Ethernet, Ipv4, Icmp],
        &[Ethernet, Vlan, Ipv6, Icmpv6],
        &[Ethernet, Arp],
        &[Ethernet, Ipv4, Ipv6, Ipv4, Udp],
        &[Ethernet, Ipv6, Udp, Ethernet, Ipv4, Tcp],
        &[Ethernet],
    ];
    let headers = prop::sample::select(stacks)
        .prop_flat_map(|kinds| kinds.iter().map(|k| layer(*k)).collect::<Vec<_>>());
    let size = prop_oneof![
        Just(None),
        (0usize..200).prop_map(|more| Some(Size::Fixed(more))),
        (0usize..50, 0usize..80).prop_map(|(from, more)| Some(Size::Range(from, from + more))),
        (0usize..50, 0usize..80).prop_map(|(from, more)| Some(Size::Random(from, from + more))),
        prop::collection::vec((0usize..300, 1usize..5), 1..4).prop_map(|mix| Some(Size::Mix(mix))),
    ];
    (headers, prop::collection::vec(data(), 0..3), size, 0u64..5, 0u64..1000).prop_map(
        |(mut layers, data, size, flows, seed)| {
            for layer in data {
                if layers
                    .last()
                    .and_then(|last| last.bytes.as_ref())
                    .is_none_or(|bytes| !bytes.fixed().is_empty())
                {
                    layers.push(layer);
                }
            }
            let mut template = Template { size: None, flows, seed, layers };
            // The sizes above count from the shortest frame on.
            let least = template.shortest().max(1);
            template.size = size.map(|size| match size {
                Size::Fixed(more) => Size::Fixed(least + more),
                Size::Range(from, to) => Size::Range(least + from, least + to),
                Size::Random(from, to) => Size::Random(least + from, least + to),
                Size::Mix(mix) => {
                    Size::Mix(mix.into_iter().map(|(more, weight)| (least + more, weight)).collect())
                }
            });
            template
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_printed_template_reads_back(template in any_template()) {
        let text = template.to_string();
        prop_assert_eq!(Template::parse(&text, "t").map_err(|p| format!("{p}\n{text}")), Ok(template));
        let line = text.trim_end().replace('\n', " / ");
        prop_assert_eq!(read(&line), read(&text));
    }

    /// The compiled program against the builder, also when the place of the batch held other frames before.
    #[test]
    fn fast_is_slow(template in any_template(), first in any::<u64>(), planned_ns: u64, utc_ns: u64) {
        let program = CompiledTemplate::new(&template);
        let mut frames = linux::port::Frames::new(3, program.longest());
        program.prepare(&mut frames);
        for round in 0..4u64 {
            frames.clear();
            for i in 0..3 {
                let n = first.wrapping_add(round * 3 + i);
                let added = program.add(&mut frames, n, Moment { planned_ns, utc_ns });
                prop_assert!(added);
            }
            let batch = frames.batch();
            for i in 0..3 {
                let n = first.wrapping_add(round * 3 + i);
                let slow = build(&template, n, Moment { planned_ns, utc_ns });
                prop_assert_eq!(batch.bytes(i as usize), &slow[..], "frame {} of\n{}", n, template);
                prop_assert_eq!(program.frame(n, Moment { planned_ns, utc_ns }), slow);
            }
        }
    }

    #[test]
    fn any_text_is_a_template_or_a_sentence(text in "[a-z0-9 ./:=@(){},\"\\\\#+\n-]{0,80}") {
        let _ = Template::parse(&text, "t");
    }

    #[test]
    fn nearly_right_text_never_panics(template in any_template(), at in 0usize..400, c in any::<char>()) {
        let mut text: Vec<char> = template.to_string().chars().collect();
        if let Some(place) = text.get_mut(at) { *place = c; }
        let text: String = text.into_iter().collect();
        if let Ok(template) = Template::parse(&text, "t")
            && template.size.as_ref().is_none_or(|size| size.all().len() < 3000) {
                let _ = CompiledTemplate::new(&template).frame(3, Moment::default());
            }
    }
}
