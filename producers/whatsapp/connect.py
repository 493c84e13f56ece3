"""How a WhatsApp number is set up: the Cloud API says which number an id is. Where messages go is entered at Meta."""

from __future__ import annotations

import secrets
from collections.abc import Sequence

from producers.connecting import Connect, PersonQuestion, Question
from shared.errors import Denied, Undeliverable
from shared.finding import Finding, ok, warn
from shared.platforms.whatsapp import ACCESS_TOKEN_FORM, NAME, NUMBER_ID_FORM, USER_ID_FORM, WhatsAppSettings
from shared.platforms.whatsapp_api import open_cloud_api

_APPS = "https://developers.facebook.com/apps"


class WhatsAppConnect(Connect[WhatsAppSettings]):
    """The four secrets and ids belong together."""

    steps = (
        f"At {_APPS} create an app of the type Business and add WhatsApp to it.",
        "WhatsApp, API Setup: note the phone number id beside your number.",
        "App settings, Basic: note the app secret.",
        "At https://business.facebook.com/settings/system-users make a token for a system user, with the permissions "
        "whatsapp_business_messaging and whatsapp_business_management: it does not expire.",
    )
    questions = (
        Question(
            "access_token",
            "The system user's token",
            secret=True,
            form=ACCESS_TOKEN_FORM,
            looks="one word of letters, digits and signs",
        ),
        Question(
            "phone_number_id",
            "The phone number id",
            "as Meta shows it beside the number: not the number itself",
            form=NUMBER_ID_FORM,
            looks="letters, digits, _ and -",
        ),
        Question("app_secret", "The app secret", "under App settings, Basic", secret=True),
        Question(
            "verify_token",
            "A word that Meta shows when you enter the address",
            "leave it empty: a random one is made",
            secret=True,
            make=lambda: secrets.token_urlsafe(24),
        ),
    )
    person = PersonQuestion(
        "Your own number", "digits only, with the country's code", USER_ID_FORM, "digits, without + and spaces"
    )
    address_is_for = "you enter it at Meta, which posts messages there"

    async def check(self, block: WhatsAppSettings) -> Sequence[Finding]:
        found = []
        async with open_cloud_api(block, connections=2) as api:
            for id in block.numbers.values():
                try:
                    about = await api.number(id)
                except Undeliverable as error:
                    raise Denied(f"WhatsApp does not know the phone number id for this token ({error})") from None
                number = about.get("display_phone_number")
                if not isinstance(number, str):
                    raise Denied("WhatsApp: the phone number id is another thing's, and no number's")
                named = str(about.get("verified_name", "no name"))[:100]
                found.append(ok(NAME, f"WhatsApp knows the token: number {number} ({named})"))
        return found

    async def set_webhook(self, block: WhatsAppSettings, url: str | None) -> Sequence[Finding]:
        where = url or f"https://<your address>/webhooks/{NAME}"
        fix = (
            f"start Keyturn there; then, at {_APPS}, WhatsApp, Configuration, enter {where} with the verify token "
            "(KEYTURN_WHATSAPP__VERIFY_TOKEN in .env), and subscribe to the field messages"
        )
        return (warn(NAME, "only you can tell Meta where to post messages", fix),)

    async def greet(self, block: WhatsAppSettings, to: str, text: str) -> None:
        """WhatsApp takes it at once and delivers it only to somebody who wrote within 24 hours."""
        assert block.phone_number_id is not None
        fields = {"recipient_type": "individual", "to": to, "type": "text", "text": {"body": text}}
        async with open_cloud_api(block, connections=2) as api:
            await api.post(block.phone_number_id, fields)


CONNECT = WhatsAppConnect()
