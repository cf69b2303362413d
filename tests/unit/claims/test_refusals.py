"""Answers without content in ten languages, and similar answers with content."""

import pytest

from service.claims.refusals import is_refusal

REFUSALS = """
I don't know
I’m sorry, but I can’t help with that.
I don't know, sorry.
Sorry, but I don't know the answer to that question.
As an AI language model, I don't have access to real-time data.
I'm not sure who wrote it.
There is not enough information provided to answer the question.
I cannot determine the answer because the question is ambiguous.
I'm sorry, I don't have that information. Is there anything else I can help you with?
Could you please clarify your question?
Unknown.
"null"
NULL
N/A
{"answer": null}
{"answer": "I don't know", "source": ""}
{"error": {"message": "overloaded", "code": 503}}
[]
Error: timeout
[ERROR] Error: connection refused
...
Das weiß ich leider nicht.
Es tut mir leid, aber ich kann Ihnen dabei nicht helfen.
Keine Ahnung.
Je suis désolé, mais je ne peux pas vous aider.
En tant qu'IA, je n'ai pas accès à ces informations.
No lo sé.
Lo siento, pero no puedo ayudarte con eso.
Не знаю.
К сожалению, у меня нет информации об этом.
抱歉，我无法回答这个问题。
作为一个人工智能语言模型，我无法提供这些信息。
i dont know
Im sorry, I cant help with that
I'm afraid I don't know.
Based on the provided context, I cannot answer this question.
As of my last knowledge update, I don't have information about that.
This question cannot be answered.
It is unclear who wrote it.
Answer: I don't know.
Sorry.
I don't know. You may want to check Wikipedia.
Not found
502 Bad Gateway
An error occurred while processing your request.
{"detail": "Not found"}
{"error": true, "retry_after": 5}
{"status": "error", "message": "timeout"}
Diese Frage kann ich nicht beantworten.
Dazu habe ich leider keine Informationen.
Die Antwort ist nicht bekannt.
On ne sait pas.
Le texte ne le mentionne pas.
No hay información disponible.
¿Puedes aclarar la pregunta?
Затрудняюсь ответить.
Недостаточно информации.
根据提供的信息，无法回答。
文中未提及。
Mi dispiace, non lo so.
Desculpe, não sei.
申し訳ありませんが、お答えできません。
わかりません。
죄송합니다. 답변할 수 없습니다.
잘 모르겠습니다.
"""
ANSWERS = """
Null
None
No.
42
+
Danke
Unknown Soldier
I don't know, maybe Paris.
I don't know but I think it is Paris.
I'm not sure, Paris?
I don't know. It is Paris.
I'm sorry, but the capital of France is Paris.
As an AI, I was made by a company.
Sorry seems to be the hardest word
There is no evidence that vaccines cause autism.
I cannot tell a lie
{"answer": "Paris"}
{"error": null, "answer": "Paris"}
{"error": 0.5}
[1, 2]
Error 404
Ich weiß: Paris.
Je ne sais quoi
Entschuldigung, es ist Berlin.
I need more cowbell
Answer: Paris
{"error": false, "message": "Paris"}
{"status": "ok", "message": "Paris"}
Please consult a doctor.
A: Unknown Pleasures
"""


@pytest.mark.parametrize("text", REFUSALS.strip().splitlines())
def test_answers_without_content(text: str) -> None:
    assert is_refusal(text)
    assert is_refusal(f" {text.upper() if text.isascii() and '{' not in text else text}\n")


@pytest.mark.parametrize("text", ANSWERS.strip().splitlines())
def test_answers_with_content(text: str) -> None:
    assert not is_refusal(text)


def test_repeated_question_has_no_content() -> None:
    assert is_refusal("what is the CAPITAL of France", "What is the capital of France?")
    assert not is_refusal("the capital of France", "What is the capital of France?")
    assert not is_refusal("", "")


def test_error_inside_code_is_detected() -> None:
    assert is_refusal('```json\n{"error": "timeout"}\n```')
    assert not is_refusal('```json\n{"answer": "Paris"}\n```')


def test_hostile_text_is_fast() -> None:
    for text in (
        "[1," * 200,
        '{"a":' * 100 + "1",
        "sorry, " * 80,
        "ich kann " + "x " * 290,
        "as an ai " * 60,
    ):
        assert not is_refusal(text)
