"""Personal details: every form that is meant is masked, numbers that only look so are left."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from curate.in_process import batch_of, removed, run
from maskwright.base.errors import DataError, UsageError
from maskwright.text.curate.engine.segment import Flow, Record
from maskwright.text.curate.personal_data import TYPES, details_of
from maskwright.text.curate.steps.personal import Settings

DETAILS = {
    "email": (
        *("sam.jones71@guide.example", "o'neil+news@mail.co.uk", "jürgen@müller.de"),
        *("sam [at] guide.example", "sam.jones(at)guide(dot)co(dot)uk", "sam AT guide DOT org"),
        *(f"{name} at guide dot org" for name in ("sam.jones", "sam7", "s_j", "sam-jones")),
    ),
    "phone": (
        *("(437) 555-0126", "437-555-0126", "+1 437 555 0126", "+44 20 7946 0018"),
        *("+49 (0)30 1234567", "+33 1 23 45 67 89", "0033 1 23 45 67 89", "020 7946 0018"),
        *("(01632) 960 001", "01 23 45 67 89", "030/12345678", "+1-415-555-2671x99"),
        *("(415) 555-2671 ext. 12", "07911123456", "8 (495) 123-45-67", "8-800-555-35-35"),
        *("(11) 91234-5678", "138 0013 8000", "０９０－１２３４－５６７８", "٠٨١٢٣٤٥٦٧٨٩"),
    ),
    "iban": (
        *("DE89 3704 0044 0532 0130 00", "GB82WEST12345698765432"),
        "FR14 2004 1010 0505 0001 3M02 606",
    ),
    "card": ("4111 1111 1111 1111", "378282246310005", "5555-5555-5555-4444"),
    "ip": ("8.8.8.8", "9.81.7.2", "145.12.86.207", "2a00:1450:4001:81b::200e"),
    "ssn": ("219-09-9999",),
    "id": (
        *("111.444.777-35", "12.345.678-5", "11010519491231002X", "131052-308T"),
        *("255081416802538", "2 55 08 14 168 025 38", "RSSMRA85T10A562S", "28079791166"),
        *("12345678Z", "X1234567L", "811228-9874", "AB123456C", "756.9217.0769.85"),
        *("HEGG560427MVZRRL04", "900101-1234567"),
    ),
}
NUMBERS = [
    *("in 1914-1918", "on 2014-05-06 at 12:30:45", "05/06/2014 and 01.02.2003", "$1,234,567.89"),
    *("ISBN 978-3-16-148410-0", "ISBN 0-306-40615-2", "ISBN 0306406152", "version 12.10.11.12"),
    *("see 1.2.3.4", "release 10.11.12.13", "Chrome/120.0.0.0", "§ 11.22.33.44"),
    *("3.14159265358979", "DE89 3704 0044 0532 0130 01", "4111 1111 1111 1112", "000-12-3456"),
    *("1234567890123456", "666-12-3456", "987-65-4321", "std::vector<int>", "cf. Hempel 1959::"),
    *("1 2 3 4 5 6 7 8 9 0", "pages 200-2015", "a@b", "me @ home", "@handle", "10 000 000 000"),
    *("4e 07 22 73 06 52 22 b2", "1995 1996 1997 1998", "0.1234567890", "scored 12-15-18-21"),
    *("300.500.700.900", "111.444.777-36", "12345678A", "12.345.678-9", "811228-9875"),
    *("ABCDEF12G34H567I", "part no. 0412-345-678", "04 05 06 07 08", "0123456789"),
    *("GB 12 34 56 A", "zip 02139-4307", "passport in 2014", "passport 2014-05-06"),
    *("the sin 30000 did", "nie 100000 Menschen", "10.0.0.135", "at 192.168.7.31", "127.0.0.1"),
    *("172.20.1.9", "169.254.3.4", "198.51.100.7", "ip 203.0.113.9", "address 192.0.2.86"),
    *("host 100.64.0.1", "224.0.0.251", "255.255.255.0", "2001:db8::8a2e:370:7334"),
    *("fe80::1:2:3", "fd12:3456:789a::1", "Upgrade from 5.2.3.4 to 5.2.4.1", "tool==5.2.3.4"),
    *("tool-5.2.3.4.zip", "(>= 5.2.3.4)", "5.2.3.4-beta", "firmware 89.12.10.11"),
    *("4.2.1.3 The Title", "we run Acme Tool 4.2.1.3", "look [at] this. Then"),
    *("serial 123456789", "they met at the dot of noon", "look at this dot com company"),
    *("Meet (at) 5.pm", "He works at Google dot Com", "Find us at example dot com today."),
    *("reach us at a dot com", "I bought it at amazon dot com.", "got 3 at amazon dot com"),
    *("mail is sent. Look at this dot com", "order 202-555-0143", "1,000,000,000", "call 911"),
    *("00:1a:2b:3c:4d:5e", "2^31 = 2147483648", "chapter 1.2.3.4"),
]
AROUND = ("{}", "Write to {}.", "({}), please", "a\n{}\nb", "是 {} 。")
# What a detail is by the words before it.
CUES = {
    "email": (
        *("e-mail: |sam at guide dot org", "Email me at |sam at guide dot org"),
        *("contact |sam at guide dot org", "write to |sam at guide dot org"),
        *("reach me via |sam at guide dot org", "mail |sam at guide dot org"),
    ),
    "phone": (
        *("Tel. |2180 8188", "phone: |555-0143", "call me on |1171 2345678", "Тел.: |123-45-67"),
        *("电话：|13800138000", "請打電話號碼 |2345 6789", "tlf. |12 34 56 78", "โทร. |๒๓๔ ๕๖๗๘"),
        *("هاتف: |١٢٣٤٥٦٧٨", "phone: |5551234x99"),
    ),
    "ssn": ("SSN |219099999", "Social Security number: |219 09 9999"),
    "id": (
        *("Passport No: |X1234567", "PESEL |44051401458", "паспорт |4510 123456"),
        *("NHS no. |143 476 5919", "(Steuer-ID: |86 095 742 719)"),
    ),
}


def details(text: str) -> list[tuple[str, str]]:
    return [(d.type, text[d.begin : d.end]) for d in details_of([text], TYPES)]


@pytest.mark.parametrize(("name", "value"), [(n, v) for n in DETAILS for v in DETAILS[n]])
def test_a_detail_is_found_whole(name: str, value: str) -> None:
    for around in AROUND:
        assert details(around.format(value)) == [(name, value)], around


@pytest.mark.parametrize("text", NUMBERS)
def test_other_numbers_are_left(text: str) -> None:
    assert details(text) == []
    assert details(f"{text} or +44 20 7946 0018") == [("phone", "+44 20 7946 0018")]  # the control


@pytest.mark.parametrize(("name", "text"), [(n, t) for n in CUES for t in CUES[n]])
def test_a_word_before_a_number_says_what_it_is(name: str, text: str) -> None:
    cue, value = text.split("|")
    assert details(cue + value) == [(name, value.rstrip(")"))]
    assert details("in " + value) == []  # the control


@pytest.mark.parametrize("text", ["http://1.2.3.4/index", "ip: 1.2.3.4"])
def test_a_number_like_a_version_is_an_address_where_the_text_says_so(text: str) -> None:
    assert details(text) == [("ip", "1.2.3.4")]


def test_details_are_masked_and_the_record_does_not_have_them() -> None:
    text = "Call (437) 555-0126 or 437-555-0199; sam@guide.example"
    (outcome,) = run(Settings(), [batch_of(["nothing here", text])])
    assert outcome.texts == ["nothing here", "Call <PHONE> or <PHONE>; <EMAIL>"]
    changes = [(c.index, c.rule, c.value) for c in outcome.changes]
    assert changes == [(1, "personal-email", 1), (1, "personal-phone", 2)]
    assert outcome.changes[1].where == "characters 5 to 19, 23 to 35"
    assert "0126" not in repr(outcome.changes) and "sam" not in repr(outcome.changes)


@pytest.mark.parametrize("action", ["mask", "remove"])
def test_records_and_examples_do_not_show_details(action: str) -> None:
    step = Settings(action=action)  # type: ignore[arg-type]
    batch = batch_of(["nothing here", "Call (437) 555-0126 or write to sam@guide.example"])

    def written(private: set[str]) -> str:
        record = Record(["personal"], private=private)
        record.take("personal", Flow.of(batch), run(step, [batch])[0])
        assert record.changed or record.removed
        return json.dumps([record.removed, record.changed, record.facts()])

    assert step.PRIVATE
    assert "0126" not in written({"personal"}) and "sam@" not in written({"personal"})
    assert "0126" in written(set())  # the control


def test_a_detector_that_is_off_finds_nothing() -> None:
    text = "sam@guide.example, 145.12.86.20, https://web.example/users/sam_jones"
    (outcome,) = run(Settings(detect=("ip",)), [batch_of([text])])
    assert outcome.texts == [text.replace("145.12.86.20", "<IP>")]
    (outcome,) = run(Settings(detect=("profile",), placeholder="[{type}]"), [batch_of([text])])
    assert outcome.texts == [text.replace("sam_jones", "[PROFILE]")]


def test_documents_with_more_than_most_are_removed() -> None:
    batch = batch_of(["no detail", "a@b.example", "a@b.example and c@d.example"])
    assert set(removed(Settings(action="remove"), [batch])) == {"d1", "d2"}
    assert removed(Settings(action="remove", most=1), [batch]) == {"d2": "personal_details"}


def test_allowed_values_are_left(tmp_path: Path) -> None:
    file = tmp_path / "allow.txt"
    file.write_text("# ours\n@guide.example\n+44 20 7946 0018  # the desk\n")
    batch = batch_of(["Sam@Guide.example, sam@other.example, +44 20 7946 0018, +44 20 7946 0019"])
    (outcome,) = run(Settings(allow=str(file)), [batch])
    assert outcome.texts == ["Sam@Guide.example, <EMAIL>, +44 20 7946 0018, <PHONE>"]


def test_a_bad_list_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text("# nothing\n\n")
    (tmp_path / "latin").write_bytes(b"a\nM\xfcller\n")
    for name, error in (("none", UsageError), ("empty", DataError), ("latin:2", DataError)):
        with pytest.raises(error, match=name):
            Settings(allow=str(tmp_path / name.removesuffix(":2"))).open()
