"""os-ken's reading of OpenFlow messages, for the differential test of the codec (crates/flow/src/openflow/osken.rs).

  codec.py files           os-ken's own recorded messages with its JSON
  codec.py parse           reads lines of hex, prints os-ken's JSON of each
  codec.py make SEED N     N random messages with the JSON from which os-ken made them

One JSON object per line: {"name", "hex", "json"} or {"error"}.
"""
import faulthandler
import json
import os
import random
import struct
import sys

import os_ken
from os_ken.ofproto import ofproto_parser, ofproto_protocol, ofproto_v1_3, ofproto_v1_4
from os_ken.ofproto import ofproto_v1_3_parser, ofproto_v1_4_parser  # registers the parsers

VERSIONS = {"of13": ofproto_v1_3.OFP_VERSION, "of14": ofproto_v1_4.OFP_VERSION}
TESTS = os.path.join(os.path.dirname(os_ken.__file__), "tests")


def files():
    for folder in sorted(VERSIONS):
        packets = os.path.join(TESTS, "packet_data", folder)
        for name in sorted(os.listdir(packets)):
            told = os.path.join(TESTS, "unit", "ofproto", "json", folder, name + ".json")
            if name.endswith(".packet") and os.path.exists(told):
                with open(os.path.join(packets, name), "rb") as data, open(told) as text:
                    yield folder, name, data.read(), json.load(text)


def parse(data):
    version, kind, length, xid = ofproto_parser.header(data)
    protocol = ofproto_protocol.ProtocolDesc(version)
    return ofproto_parser.msg(protocol, version, kind, length, xid, data).to_jsondict()


# What os-ken computes itself, and what chooses the shape of a message.
FIXED = {"type", "len", "length", "event", "version", "property", "field", "versions", "hasmask", "experimenter",
         "exp_type", "table_ids", "buffer_id", "OXMTlv"}
BITS = {64: "cookie cookie_mask generation_id metadata metadata_mask metadata_match metadata_write",
        32: "out_port out_group port group_id meter_id rate burst_size port_no queue_id xid bundle_id monitor_id in_port "
            "watch_port watch_group config mask advertise max_entries role configure freq_lmda fl_offset grid_span tx_pwr",
        16: "idle_timeout hard_timeout priority flags max_len weight miss_send_len importance ethertype"}
WIDTH = {key: bits for bits, keys in BITS.items() for key in keys.split()}


def leaves(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            if key not in FIXED:
                yield from leaves(inner, path + (key,))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from leaves(inner, path + (index,))
    elif isinstance(value, int) and not isinstance(value, bool):
        yield path


def put(value, path, number):
    for step in path[:-1]:
        value = value[step]
    value[path[-1]] = number


def write(version, told):
    protocol = ofproto_protocol.ProtocolDesc(version)
    message = ofproto_parser.ofp_msg_from_jsondict(protocol, told)
    message.set_xid(7)
    message.serialize()
    return bytes(message.buf), message.to_jsondict()


def make(seed, count):
    draw = random.Random(seed)
    bases = []
    for folder, name, data, told in files():
        # Headers that os-ken computes; Nicira's actions, whose numbers have limits of their own.
        if "packet_library" in name or "ovs-ofctl" in name:
            continue
        try:
            if write(VERSIONS[folder], told)[0][8:] == data[8:]:
                bases.append((folder, name, told))
        except Exception:  # a message that os-ken can only read
            continue
    for index in range(count):
        folder, name, told = bases[index % len(bases)]
        told = json.loads(json.dumps(told))
        for path in leaves(told):
            keys = [step for step in path if isinstance(step, str)]
            bits = draw.choice((WIDTH.get(keys[-1], 8), 7))
            put(told, path, draw.getrandbits(bits))
        try:
            data, told = write(VERSIONS[folder], told)
        except struct.error as error:
            sys.exit("%s: %s in %s" % (name, error, told))
        yield folder, name, data, told


def tell(**words):
    print(json.dumps(words), flush=True)


def main():
    faulthandler.dump_traceback_later(120, exit=True)  # rather than hang on a message
    mode = sys.argv[1]
    if mode == "parse":
        for line in sys.stdin:
            try:
                tell(json=parse(bytes.fromhex(line.strip())))
            except Exception as error:
                tell(error="%s: %s" % (type(error).__name__, error))
        return
    found = files() if mode == "files" else make(int(sys.argv[2]), int(sys.argv[3]))
    for folder, name, data, told in found:
        tell(name="%s/%s" % (folder, name), hex=data.hex(), json=told)


main()
