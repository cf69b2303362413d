"""Greetings, farewells and offers of help, which claim nothing, in the six languages of the tests.

A phrase with free text may contain a fact: "Thank you for asking, the dose is 5 mg". So it is a courtesy only
without a number, a name or a further statement. In German, names are not checked: every noun has a capital.
"""

import re

# A longer sentence says more than a courtesy.
_MAX_CHARS = 300

# The whole sentence, or before a name or two, if an exclamation mark or a comma ends it.
_GREETING = r"""
hello|hi|hey|greetings|welcome|dear|good (?:morning|afternoon|evening|day|night|luck)|goodbye|good-bye|bye
cheers
hallo|guten (?:tag|morgen|abend)|grüß gott|servus|moin|auf wiedersehen|tschüss|tschüß|bis bald
bonjour|bonsoir|salut|au revoir|à bientôt|cher|chère
hola|buenos días|buenas tardes|buenas noches|adiós|hasta luego|hasta pronto|estimado|estimada
привет|здравствуйте|здравствуй|добрый день|добрый вечер|доброе утро|до свидания|пока
"""

# The whole sentence.
_ALONE = r"""
sure|sure thing|of course|certainly|absolutely|definitely|no problem|my pleasure|got it|okay|ok|great
thanks|thank you
thank you (?:very|so) much|thanks (?:a lot|again)|thank you for your (?:question|patience|time|message)
(?:best|kind) regards
regards|sincerely|yours sincerely|take care|happy to help|glad to help
(?:that(?:'s| is) a |what a )?(?:great|good|excellent) question
enjoy|good to see you|nice to meet you|have fun|you're (?:very )?welcome|you are welcome
gerne|sehr gerne|gern|klar|natürlich|selbstverständlich|sicher|danke|vielen dank|danke schön|bitte
bitte schön|bitte sehr
(?:das ist eine )?(?:sehr )?gute frage|mit freundlichen grüßen|viele grüße|liebe grüße
viel (?:erfolg|glück|spaß)|kein problem
bien sûr|certainement|avec plaisir|volontiers|merci|merci beaucoup|cordialement
(?:c'est une )?(?:très )?bonne question
bonne (?:chance|journée|soirée|continuation|lecture)|pas de problème|d'accord|de rien|je vous en prie
claro|claro que sí|por supuesto|con gusto|desde luego|gracias|muchas gracias|de nada|saludos
saludos cordiales|un saludo
(?:(?:esa )?es una )?(?:muy )?buena pregunta|buena suerte|sin problema|mucha suerte
конечно|разумеется|с удовольствием|спасибо|большое спасибо|пожалуйста|(?:это )?(?:очень )?хороший вопрос
отличный вопрос
удачи|всего доброго|всего хорошего|хорошего дня|с уважением|не за что|без проблем
你好|您好|大家好|早上好|晚上好|再见
好的|当然|当然可以|没问题|谢谢|非常感谢|不客气|不用谢|好问题|(?:这是)?(?:一)?个(?:很)?好(?:的)?问题|祝好|祝您好运|祝你好运
"""

# The beginning of a sentence.
_OPENING = r"""
(?:please )?let me know|(?:please )?feel free to (?:ask|reach|let|contact me|share|provide|explore)
(?:please )?(?:don't|do not) hesitate to (?:ask|reach|let|contact me)
(?:i )?hope (?:this|that|it|these)\b[^:;]*?\bhelp|hope to hear
if (?:you|there)\b[^:;]*?\b(?:let me know|(?:just|please) ask|i can (?:help|explain|provide|show))
if (?:you|there)\b[^:;]*?\bi(?:'m| am|'d be| would be|'ll be| will be) (?:happy|glad|here|delighted)
if (?:you|there)\b[^:;]*?\b(?:feel free|(?:don't|do not) hesitate) to (?:ask|reach|let)
i(?:'m| am|'d be| would be|'ll be) (?:always )?(?:happy|glad|here|delighted) to (?:help|assist|answer|explain)
(?:i )?look forward to|looking forward to|have an? (?:great|nice|good|wonderful|lovely)
thank you for (?:asking|reaching|your)
thanks for (?:asking|reaching|your)|how can i (?:help|assist)|enjoy your|wishing you|best of luck
j'espère (?:que|avoir)\b[^:;]*?\b(?:aid|util|répon|clair)
n'hésite[sz]? pas (?:si (?:vous|tu)\b|à (?:me|demander|poser|revenir)\b)
faites-moi savoir|fais-moi savoir|dites-moi si|dis-moi si
si (?:vous|tu)\b[^:;]*?\bn'hésite[sz]? pas à (?:me|demander|poser)\b
si (?:vous|tu)\b[^:;]*?\b(?:faites-moi|fais-moi|dites-(?:le-)?moi|dis-(?:le-)?moi|je (?:suis|reste))\b
je (?:reste|suis) (?:à votre|à ta|là pour|ici pour|toujours là|heureux de|ravi)
merci (?:de|pour) (?:votre|ta|m'avoir|nous)|je vous souhaite|passez une
espero que (?:esto|eso|te|le|les|la|esta|haya)\b[^:;]*?\b(?:ayud|útil|sirv|clar)|espero haber
no dud(?:e|es|en) en (?:pregunt|dec[ií]r|consult|escrib|contactarme|hacérme)|avísame|avíseme|hazme saber
házmelo saber|hágamelo
(?:déjame|déjeme) saber
si (?:tienes?|necesitas?|quieres?|deseas?)\b[^:;]*?\bno dud(?:e|es) en (?:pregunt|dec[ií]r|consult)\w*
si (?:tienes?|necesitas?|quieres?|deseas?)\b[^:;]*?\b(?:dime|dígame|avísame|avíseme|házmelo)\b
si (?:tienes?|necesitas?|quieres?|deseas?)\b[^:;]*?\b(?:déjame|estoy|estaré)\b
estoy (?:aquí|a tu|a su|encantad[oa])|que (?:tengas|tenga|pases|pase) (?:un|una|buen)
gracias por (?:tu|su|preguntar|contactar)|será un placer
надеюсь\b[^:;]*?(?:помо|полез|понят)
если\b[^:;]*?(?:задавайте|задавай|спрашивайте|спрашивай|обращайтесь|обращайся|знать|пишите)$
если\b[^:;]*?буду рада?\b
обращайтесь$|обращайся$|дайте мне знать|дай знать|дайте знать|не стесняйтесь|не стесняйся|спрашивай(?:те)?$
(?:я )?(?:буду рад|буду рада|рад помочь|рада помочь|всегда рад|готов помочь)|желаю (?:вам|тебе)
спасибо за (?:ваш|твой|вопрос|обращение)
希望(?:这|以上|上述|我的|能|对)[^:;]*?(?:帮助|帮到|有用)|如(?:果|有|需)[^:;]*?(?:告诉我|告知我|随时(?:问|提问|联系我|告诉|提出)|我很乐意|我会)
(?:请|欢迎)?随时(?:问|提问|告诉我|联系我|向我|提出)|欢迎[^:;]*?(?:提问|咨询|继续)|很高兴[^:;]*?(?:为您|为你|帮|认识)|祝(?:你|您)|感谢(?:你|您)的|我很乐意|请告诉我
"""
_OPENING_DE = r"""
(?:lass|lassen sie) (?:es )?(?:mich|uns) (?:gerne |bitte )?wissen
zögern sie nicht, (?:mich|mir|zu fragen|nachzufragen)|zögere nicht, (?:mich|mir|zu fragen|nachzufragen)
melde(?:n sie)? (?:dich|sich) (?:gern|einfach|jederzeit|bei mir)
(?:wenn|falls|sollten|solltest)\b[^:;]*?\b(?:mich wissen|mir (?:gerne? )?bescheid|melde dich)\b
(?:wenn|falls|sollten|solltest)\b[^:;]*?\b(?:helfe ich|stehe ich|bin ich)\b
(?:wenn|falls|sollten|solltest)\b[^:;]*?\bfrag(?:en sie)? (?:einfach|mich)\b
(?:ich )?hoffe,? (?:das|dies|es|diese|ich)\b[^:;]*?\b(?:hilft|helfen|weiter|geholfen|hilfreich)
(?:ich helfe|ich stehe|gerne helfe|gern helfe|ich freue mich)|(?:ich )?wünsche (?:dir|ihnen)|einen schönen
schönen tag|vielen dank für|danke für
viel (?:erfolg|glück|spaß) (?:und|bei|beim|mit|dabei)\b
"""

# Not "one", which is an article or a pronoun as well.
_NUMBER_WORDS = r"""
two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|\w{3,5}teen|(?:twen|thir|for|fif|six|seven|eigh|nine)ty
hundreds?|thousands?|[mb]illions?|half|halves|quarters?|dozens?|couple|twice|thrice|double[ds]?|triple[ds]?
second|third|fourth|fifth
zwei|drei|vier|fünf|sechs|sieben|acht|neun|zehn|elf|zwölf|\w{3,6}zehn|zwanzig|dreißig|(?:vier|fünf|sech|sieb|acht|neun)zig
hundert|tausend|million(?:en)?|milliarden?|halb\w*|hälfte|dutzend|paar|doppelt\w*|zweimal|dreimal|verdoppel\w*
deux|trois|quatre|cinq|sept|huit|neuf|dix|onze|douze|treize|quatorze|quinze|seize|vingt|trente|quarante|cinquante
soixante|cents?|mille|millions?|milliards?|moitié|demi\w*|douzaines?|double[rz]?|triple[rz]?
dos|tres|cuatro|cinco|seis|siete|ocho|nueve|diez|once|doce|trece|catorce|quince|veinte|treinta|cuarenta|cincuenta
sesenta|cien(?:tos?)?|mil|mill[oó]n(?:es)?|mitad|medi[oa]|docenas?|doble|triple
два|две|двух|три|трёх|трех|четыре|пять|шесть|семь|восемь|девять|десять|двадцать|тридцать|сорок|пятьдесят|сто
тысяч[аи]?|миллион(?:а|ов)?|половин[аыу]|дюжин[аыу]|вдвое|дважды|двойн\w+
"""
# With a capital anywhere: the reader and the writer.
_PERSON = re.compile(r"i|sie|ihnen|ihr\w{0,2}|du|dir|dich|dein\w{0,2}|usted(?:es)?|вы|вас|вам|вами|ваш\w*")


def _alternatives(phrases: str) -> str:
    return "|".join(phrases.casefold().split("\n")[1:-1])


_COURTESY = re.compile(f"{_alternatives(_GREETING)}|{_alternatives(_ALONE)}")
_BEGUN = re.compile(_alternatives(_OPENING))
_BEGUN_DE = re.compile(_alternatives(_OPENING_DE))
_GREETING_BY_NAME = re.compile(rf"(?:{_alternatives(_GREETING)}),?(?: [^\W\d_]+){{1,2}}")
_EDGES = re.compile(r"^\W+|\W+$")
_WORD = re.compile(r"[^\W\d_]+")
_NUMBER = re.compile(
    rf"[\d²³¹¼-¾⅐-↋①-⓿]|(?<!\w)(?:{_alternatives(_NUMBER_WORDS)})(?!\w)"
    r"|[二两三四五六七八九十百千万亿]+(?:个|次|片|粒|天|年|月|日|岁|米|克|毫克|元|人|倍|点|小时)"
)
# The text after one of these may be a separate statement.
_PIECE = re.compile(
    r"[,，、(（]| [-–—] |—|但|因为"
    r"|(?<!\w)(?:but|because|aber|weil|mais|parce que|pero|porque|но|потому что)(?!\w)"
)
_AND = re.compile(r"^(?:and|or|und|oder|et|ou|y|o|и|или)\s+")


def is_courtesy(sentence: str) -> bool:
    """Return True if the whole sentence is a greeting, thanks, a farewell or an offer of help.

    A greeting may name whom it greets ("Hello Anna!"). Any other number or name makes the sentence a claim.
    """
    if len(sentence) > _MAX_CHARS:
        return False
    text = plain(sentence)
    if _COURTESY.fullmatch(text):
        return True
    if begun := _BEGUN.match(text) or _BEGUN_DE.match(text):
        has_name = begun.re is _BEGUN and _has_name(sentence)
        return not (_NUMBER.search(text) or has_name or _states(text[begun.end() :]))
    return sentence.endswith(("!", "！", ",", "，")) and _GREETING_BY_NAME.fullmatch(text) is not None


def plain(text: str) -> str:
    """Return a text without case and the marks around it, as the phrases are written."""
    return " ".join(_EDGES.sub("", text.casefold().replace("’", "'")).split())


def _has_name(sentence: str) -> bool:
    """Return whether a word other than the first has a capital and addresses nobody."""
    capitals = [word for word in _WORD.findall(sentence)[1:] if word[0].isupper()]
    return not sentence.isupper() and not all(_PERSON.fullmatch(word.casefold()) for word in capitals)


def _states(rest: str) -> bool:
    """Return whether the end of a courtesy states something: after a colon, or at length after a comma."""
    if re.search(r"[:;：；]\s*\S", rest):
        return True
    pieces = [_AND.sub("", plain(piece)) for piece in _PIECE.split(rest)[1:]]
    return any(_is_long(piece) and not is_courtesy(piece) for piece in pieces)


def _is_long(piece: str) -> bool:
    """Return whether a piece has three words, or four characters of a script without spaces."""
    return len(piece.split()) >= 3 or (len(piece) >= 4 and piece[0] >= "⺀")
