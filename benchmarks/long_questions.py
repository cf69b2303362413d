"""Sixty questions with long answers, and rules that check numbers, years and names in the answers.

A fact applies to a sentence that is `about` it and gives a `value`. A sentence is right if it matches `right`
of all facts that apply. The rules miss other errors, such as a wrong birthday with the right year.
"""

import re
from dataclasses import dataclass

NAME, YEAR = r"[A-Z][a-z]{2,}", r"\b1\d{3}\b|\b20\d{2}\b"
NUMBER = r"\d|\b(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|no)\b"
ORDINAL = r"first|second|third|fourth|fifth|sixth|seventh|eighth|\d(?:st|nd|rd|th)"
CONTINENT = (
    r"Europe|Asia|Africa|America|Oceania|Australia|Antarctica|Middle East|Balkan|Scandinavia|Caribbean"
)

# Capital, continent, currency, official language.
COUNTRIES = """
France, Paris, Europe, euro, French
Japan, Tokyo, Asia, yen, Japanese
Germany, Berlin, Europe, euro, German
Italy, Rome, Europe, euro, Italian
Spain, Madrid, Europe, euro, Spanish
Egypt, Cairo, Africa, pound, Arabic
Kenya, Nairobi, Africa, shilling, Swahili|English
Brazil, Bras[ií]lia, South America, real, Portuguese
Canada, Ottawa, North America, dollar, English|French
Australia, Canberra, Oceania|Australia, dollar, English
India, New Delhi, Asia, rupee, Hindi|English
China, Beijing, Asia, yuan|renminbi, Mandarin|Chinese
Mexico, Mexico City, North America, peso, Spanish
Peru, Lima, South America, sol, Spanish|Quechua
Norway, Oslo, Europe, krone, Norwegian
Greece, Athens, Europe, euro, Greek
Turkey, Ankara, Asia|Europe, lira, Turkish
Poland, Warsaw, Europe, z[łl]oty, Polish
Thailand, Bangkok, Asia, baht, Thai
Argentina, Buenos Aires, South America, peso, Spanish
"""
COUNTRIES_UNSEEN = """
Portugal, Lisbon|Lisboa, Europe, euro, Portuguese
Sweden, Stockholm, Europe|Scandinavia, krona, Swedish
Vietnam, Hanoi, Asia, dong|đồng, Vietnamese
Chile, Santiago, South America, peso, Spanish
Colombia, Bogot[aá], South America, peso, Spanish
Nigeria, Abuja, Africa, naira, English
Hungary, Budapest, Europe, forint, Hungarian
Denmark, Copenhagen, Europe|Scandinavia, krone, Danish
Morocco, Rabat, Africa, dirham, Arabic|Berber|Amazigh|Tamazight
Pakistan, Islamabad, Asia, rupee, Urdu|English
"""
# Symbol, atomic number.
ELEMENTS = """
gold, Au, 79
oxygen, O, 8
carbon, C, 6
iron, Fe, 26
hydrogen, H, 1|one
helium, He, 2|two
silver, Ag, 47
sodium, Na, 11|eleven
"""
ELEMENTS_UNSEEN = """
copper, Cu, 29
lead, Pb, 82
chlorine, Cl, 17
mercury, Hg, 80
"""
# Born in the year, died in the year, born in the place.
PERSONS = """
Albert Einstein, 1879, 1955, Ulm|German
Isaac Newton, 164[23], 172[67], Woolsthorpe|Engl|Lincolnshire|British
Marie Curie, 1867, 1934, Warsaw|Pol
Charles Darwin, 1809, 1882, Shrewsbury|Engl|British
Wolfgang Amadeus Mozart, 1756, 1791, Salzburg|Austria
Abraham Lincoln, 1809, 1865, Kentucky|Hodgenville|America|United States
William Shakespeare, 1564, 1616, Stratford|Engl|British
Leonardo da Vinci, 1452, 1519, Vinci|Ital|Florence|Tuscany
"""
PERSONS_UNSEEN = """
Ludwig van Beethoven, 1770, 1827, Bonn|German
Charles Dickens, 1812, 1870, Portsmouth|Engl|British
Mahatma Gandhi, 1869, 1948, Porbandar|India|Gujarat
Vincent van Gogh, 1853, 1890, Zundert|Netherlands|Dutch|Holland
"""
# Place from the Sun, moons.
PLANETS = """
Mars, fourth|4th, two|2
Jupiter, fifth|5th, 79|80|92|95|97
Venus, second|2nd, no|zero|0
Saturn, sixth|6th, 82|83|145|146|274
"""
PLANETS_UNSEEN = """
Mercury, first|1st, no|zero|0
Neptune, eighth|8th, 14|16|fourteen|sixteen
"""
FIRST = 40  # number of questions used to choose the claims' weights and the rule of `support`


@dataclass(frozen=True)
class Fact:
    """Regular expressions for the topic (any case), for a value, and for the right value."""

    about: str
    value: str
    right: str


@dataclass(frozen=True)
class Question:
    """A question, and the facts that check its answers."""

    text: str
    facts: list[Fact]

    def verdict(self, sentence: str) -> bool | None:
        """Return whether a sentence is right; None if no fact applies."""
        matches = [
            re.search(fact.right, sentence) is not None
            for fact in self.facts
            if re.search(fact.about, sentence, re.IGNORECASE) and re.search(fact.value, sentence)
        ]
        return all(matches) if matches else None


def rows(table: str) -> list[list[str]]:
    return [line.split(", ") for line in table.strip().splitlines()]


def questions() -> list[Question]:
    """Return the sixty questions, beginning with the first `FIRST`."""
    first = _questions(COUNTRIES, ELEMENTS, PERSONS, PLANETS)
    return first + _questions(COUNTRIES_UNSEEN, ELEMENTS_UNSEEN, PERSONS_UNSEEN, PLANETS_UNSEEN)


def _questions(countries: str, elements: str, persons: str, planets: str) -> list[Question]:
    questions_ = []
    ask = "Write a short paragraph about"
    for name, capital, continent, currency, language in rows(countries):
        details = "Name its capital, its continent, its currency and its official language."
        text = f"{ask} the country {name}. {details}"
        facts = [
            Fact(r"\bcapital\b", rf"\b(?!{name}){NAME}", capital),
            Fact(r"continent|located (?:in|on)|situated|lies in", CONTINENT, continent),
            Fact(r"\bcurrency\b", ".", rf"(?i:\b(?:{currency})s?\b)"),
            Fact(r"official language|language (?:is|of)|spoken", NAME, language),
        ]
        questions_.append(Question(text, facts))
    for name, symbol, number in rows(elements):
        text = (
            f"{ask} the chemical element {name}. Name its symbol, its atomic number and what it is used for."
        )
        facts = [
            Fact(r"\bsymbol\b", ".", rf"\b{symbol}\b"),
            Fact("atomic number|protons", NUMBER, rf"\b(?:{number})\b"),
        ]
        questions_.append(Question(text, facts))
    for name, born, died, place in rows(persons):
        text = (
            f"{ask} {name}. Say when and where they were born, what they are known for, and when they died."
        )
        facts = [
            Fact(r"\bborn\b", YEAR, rf"\b{born}\b"),
            Fact(r"\bborn\b.*\bin\b", rf"\bin (?:[a-z]+ )*{NAME}", place),
            Fact(r"\bdied\b|\bdeath\b|passed away", YEAR, rf"\b{died}\b"),
        ]
        questions_.append(Question(text, facts))
    for name, place, moons in rows(planets):
        details = "Say which planet from the Sun it is, how many moons it has and what it is like."
        text = f"{ask} the planet {name}. {details}"
        facts = [Fact("from the sun", ORDINAL, place), Fact(r"\bmoons?\b", NUMBER, rf"\b(?:{moons})\b")]
        questions_.append(Question(text, facts))
    return questions_
