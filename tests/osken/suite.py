"""Starts os-ken's switch tester (the Ryu switch test tool) with three mistakes of os-ken 3.1.0 put right, which no switch can meet.

* os_ken.lib.packet.sctp computes SCTP's CRC32c over the characters of str(data), which in Python 3 are those of "b'...'": a
  switch that follows RFC 9260 section 6.8 fails the 16 cases that set an SCTP port.
* The tester compares the rules that it sent and got back by their text, and 24 files of OpenFlow 1.4 spell an IPv6 address
  "10::0", which os-ken itself writes as "10::" when it reads it back. Here what was sent is read back, too.
* Cases that measure rates send a fixed number of frames and then sleep for 10 ms, again and again: 5 to 20 % less than the case
  says, more so on a busy machine, while a meter's remainder has to be right within 10 %. Here the generator keeps the clock, and a
  frame that does not change is written once: to write each of 20,000 packet-outs per second by itself is a whole CPU of Python.

With PATHLAB_OSKEN_SECONDS rates are measured for so many seconds and not for 30, without the second in which a meter's burst is spent.
Everything else is os-ken's own.
"""
import os
import sys
import time

from os_ken.lib.packet import sctp


def table():
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (0x82F63B78 if number & 1 else 0)
        yield number


TABLE = list(table())


def checksum(_self, data):
    crc = 0xFFFFFFFF
    for byte in bytes(data):
        crc = (crc >> 8) ^ TABLE[(crc ^ byte) & 0xFF]
    return int.from_bytes((crc ^ 0xFFFFFFFF).to_bytes(4, "little"), "big")


def read_back(compare):
    def compare_flow(self, told, sent):
        match = sent.match
        if hasattr(match, "fields") or match.to_jsondict()["OFPMatch"].get("oxm_fields"):
            room = bytearray()
            match.serialize(room, 0)
            sent.match = type(match).parser(bytes(room), 0)
        return compare(self, told, sent)

    return compare_flow


def written(tester_sw, data):
    """The bytes of the packet-out that the tester sends of a frame. Nothing answers one, so that all of them may have one number."""
    messages = []
    send_msg, tester_sw.send_msg = tester_sw.send_msg, messages.append
    try:
        tester_sw.send_packet_out(data)
    finally:
        tester_sw.send_msg = send_msg
    (message,) = messages
    tester_sw.dp.set_xid(message)
    message.serialize()
    return bytes(message.buf)


def by_the_clock(tester):
    def send(self, arg):
        rate = arg["packet_counter_inc"] / tester.CONTINUOUS_THREAD_INTVL
        begun, sent = time.monotonic(), 0
        same = None if arg["randomize"] else written(self.tester_sw, arg["packet_binary"])
        while self.ingress_event is not None:
            tester.hub.sleep(tester.CONTINUOUS_THREAD_INTVL)
            due = int((time.monotonic() - begun) * rate)
            try:
                if same:
                    if not self.tester_sw.dp.send(same * (due - sent)):
                        raise tester.TestError(tester.STATE_DISCONNECTED)
                else:
                    for _ in range(due - sent):
                        message = eval("/".join(arg["packet_text"]), vars(tester))
                        message.serialize()
                        self.tester_sw.send_packet_out(message.data)
            except Exception as problem:
                self.thread_msg = problem
                self.ingress_event.set()
                return
            sent = due

    return send


def without_the_burst(tester, seconds):
    """Measures a rate for so many seconds, from one second after its first frame: the burst of a meter is spent by then."""
    send, check = tester.OfTester._continuous_packet_send, tester.OfTester._test_throughput_check

    def continuous_packet_send(self, packet):
        packet["packets"]["duration_time"] = 1
        send(self, packet)
        self.measured_from = self._test(tester.STATE_GET_THROUGHPUT)
        self.ingress_event.wait(seconds)
        if self.thread_msg is not None:
            raise self.thread_msg

    def throughput_check(self, throughputs, _start, end):
        return check(self, throughputs, self.measured_from, end)

    tester.OfTester._continuous_packet_send = continuous_packet_send
    tester.OfTester._test_throughput_check = throughput_check


if __name__ == "__main__":
    import os_ken.tests.switch

    if sys.argv[1:] == ["--folder"]:
        print(os.path.dirname(os_ken.tests.switch.__file__))
        sys.exit()
    sctp.sctp._checksum = checksum
    from os_ken.cmd.manager import main
    from os_ken.tests.switch import tester

    tester.OfTester._compare_flow = read_back(tester.OfTester._compare_flow)
    tester.OfTester._send_packet_thread = by_the_clock(tester)
    if "PATHLAB_OSKEN_SECONDS" in os.environ:
        without_the_burst(tester, int(os.environ["PATHLAB_OSKEN_SECONDS"]))
    sys.argv.append("os_ken.tests.switch.tester")
    sys.exit(main())
