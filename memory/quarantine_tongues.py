"""The known shapes of orders to a reader in other languages than English, by the rule that they belong to.

German, French, Spanish, Italian, Portuguese, Dutch, Russian, Chinese, Japanese, Korean, Arabic and Hindi. As with the
English ones, each shape wants several words of a known attack beside each other: a verb for ignoring, a word for
orders and one that says which orders; or an address with what the reader is to become.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final


def _near(words: int, but: str = "") -> str:
    """Up to so many words, none of them one of `but`."""
    word = rf"(?!(?:{but})\b)\w+" if but else r"\w+"
    return rf"(?:\W+{word}){{0,{words}}}?\W+"


_DE_ORDERS: Final = r"(?:system)?(?:anweisung|instruktion|vorgabe|regel|befehl|prompt)\w*"
_DE_WHICH: Final = (
    r"(?:alle|sämtliche|bisherige|vorherige|vorige|obige|frühere|vorangegangene|deine|ihre|eure)\w?"
)
_DE_READER: Final = (
    r"(?:assistent\w*|agent\w*|ki|ki-\w+|modell\w*|bot|chatbot|admin\w*|entwickler\w*|un(?:ein)?geschränkt\w*"
    r"|unbeschränkt\w*)"
)
_FR_ORDERS: Final = r"(?:instructions?|consignes?|directives?|règles?|ordres|prompts?)"
_FR_WHICH: Final = r"(?:précédent\w*|antérieur\w*|ci-dessus|initiale?s?|système|reçues?|d'avant)"
_FR_READER: Final = (
    r"(?:assistante?|agent|ia|modèle|robot|bot|chatbot|admin\w*|développeur|sans (?:aucune )?(?:limite"
    r"|restriction|filtre)s?)"
)
_ES_ORDERS: Final = r"(?:instrucciones|indicaciones|[oó]rdenes|reglas|directrices|prompts?)"
_ES_WHICH: Final = r"(?:anteriores|previas|precedentes|de arriba|del sistema|recibidas)"
_ES_READER: Final = (
    r"(?:asistente|agente|ia|modelo|robot|bot|chatbot|admin\w*|desarrollador\w*|sin (?:ning\w+ )?"
    r"(?:l[ií]mite|restricci[oó]n"
    r"|restriccione|filtro)s?)"
)
_IT_ORDERS: Final = r"(?:istruzioni|indicazioni|regole|direttive|comandi|prompt)"
_IT_WHICH: Final = r"(?:precedent\w+|anterior\w+|(?:di )?(?:cui )?sopra|ricevut\w+|di sistema)"
_IT_READER: Final = (
    r"(?:assistente|agente|ia|modello|robot|bot|chatbot|admin\w*|sviluppatore|senza (?:alcun\w? )?(?:limiti"
    r"|restrizioni|filtri))"
)
_PT_ORDERS: Final = r"(?:instru[çc][õo]es|orienta[çc][õo]es|regras|ordens|diretrizes|comandos|prompts?)"
_PT_WHICH: Final = r"(?:anteriores|pr[ée]vias|precedentes|acima|recebidas|do sistema|passadas)"
_PT_READER: Final = (
    r"(?:assistente|agente|ia|modelo|rob[ôo]|bot|chatbot|admin\w*|desenvolvedor\w*"
    r"|sem (?:nenhuma? )?(?:limite|restri[çc][ãa]o|restri[çc][õo]e|filtro)s?)"
)
_NL_ORDERS: Final = r"(?:systeem)?(?:instructies?|aanwijzing\w*|opdrachten|regels|richtlijnen|prompts?)"
_NL_WHICH: Final = r"(?:alle|vorige|eerdere|voorgaande|bovenstaande|voorafgaande|jouw)"
_NL_READER: Final = (
    r"(?:assistent\w*|agent|ai|ai-\w+|model|robot|bot|chatbot|beheerder|admin\w*|ontwikkelaar|onbeperkt\w*"
    r"|zonder (?:beperking|regel)\w*)"
)
_RU_ORDERS: Final = r"(?:инструкци|указани|команд|правил|промпт|директив|предписани)\w*"
_RU_WHICH: Final = r"(?:все|всех|любые|предыдущ\w+|прежн\w+|прошл\w+|вышеуказанн\w+|тво\w+|сво\w+|системн\w+)"
_RU_READER: Final = (
    r"(?:ассистент\w*|помощник\w*|агент\w*|ии|модель\w*|бот\w*|чат-?бот\w*|админ\w*|разработчик\w*|без "
    r"(?:всяких )?ограничений)"
)
_ZH_ORDERS: Final = "(?:指令|指示|说明|說明|提示词|提示詞|提示|规则|規則|命令|设定|設定)"
_ZH_WHICH: Final = "(?:之前|以前|先前|前面|此前|上面|上述|以上|所有|全部|一切|你的|原有|系统|系統)"
_ZH_READER: Final = (
    "(?:助手|助理|代理|人工智能|模型|机器人|機器人|ai|管理员|管理員|开发者|開發者|不受(?:任何)?限制"
    "|[没沒]有(?:任何)?限制|[无無]限制)"
)
_JA_ORDERS: Final = "(?:指示|命令|プロンプト|ルール|規則|指令)"
_JA_WHICH: Final = "(?:これまで|今まで|以前|上記|前述|直前|すべて|全て|全部|先ほど|あなた|元|システム)"
_JA_READER: Final = "(?:アシスタント|エージェント|ai|モデル|ボット|管理者|開発者|制限のない|無制限)"
_KO_ORDERS: Final = "(?:지시|지침|명령|프롬프트|규칙)"
_KO_WHICH: Final = "(?:이전|앞선|앞의|위의|기존|모든|지금까지|당신의|시스템)"
_KO_READER: Final = (
    "(?:어시스턴트|비서|에이전트|인공지능|ai|모델|챗봇|봇|관리자|개발자|제한 없는|제한이 없는|무제한)"
)
_AR_ORDERS: Final = "(?:التعليمات|الأوامر|الاوامر|التوجيهات|القواعد|الإرشادات|الارشادات)"
_AR_WHICH: Final = "(?:السابقة|أعلاه|اعلاه|المسبقة|الأصلية|الاصلية)"
_AR_READER: Final = (
    r"(?:مساعد\w*|وكيل\w*|ذكاء|نموذج\w*|روبوت\w*|مدير\w*|مطور\w*|بلا قيود|بدون قيود|بدون أي قيود|غير مقيد)"
)
_HI_ORDERS: Final = "(?:निर्देश|आदेश|नियम|प्रॉम्प्ट|हिदायत)"
_HI_WHICH: Final = "(?:पिछल|पहले|पूर्व|ऊपर|सभी|सारे|अपने|सिस्टम)"
_HI_READER: Final = "(?:सहायक|एजेंट|एआई|मॉडल|बॉट|प्रशासक|एडमिन|डेवलपर|असीमित|बिना किसी)"

OVERRIDE: Final = (
    rf"\b(?:ignorier|vergiss|vergesst|vergessen|missachte|umgeh)\w*\b{_near(2, 'nicht')}{_DE_WHICH}"
    rf"{_near(3)}{_DE_ORDERS}",
    rf"\b(?:ignorier|missachte)\w*\b{_near(2, 'nicht')}{_DE_ORDERS}\W+(?:oben|zuvor|von vorhin)\b",
    rf"\b(?:ignore[zr]?|oublie[zr]?|néglige[zr]?|ne (?:tiens|tenez) (?:pas|plus) compte d[eu]\w?)\W+"
    rf"(?:de )?(?:(?:toutes|tous)\W+(?:les|tes|vos|ces)|tes|vos){_near(1)}{_FR_ORDERS}\b",
    r"\b(?:ignore[zr]?|oublie[zr]?|ne (?:tiens|tenez) (?:pas|plus) compte d[eu]\w?)\W+(?:les "
    rf"|ces )?{_FR_ORDERS}\W+"
    rf"{_FR_WHICH}",
    r"\b(?:ignor[ae]n?|olvid[ae]n?|ol[vb][ií]d[ae](?:te|se) de|descart[ae]n?|omit[ae]n?"
    r"|ha[zg]a? caso omiso (?:a|de))\W+"
    rf"(?:todas(?:\W+(?:las|tus|sus|estas))?|tus){_near(2)}?{_ES_ORDERS}\b",
    r"\b(?:ignor[ae]n?|olvid[ae]n?|ol[vb][ií]d[ae](?:te|se) de|ha[zg]a? caso omiso (?:a|de))\W+(?:las "
    r"|estas )?"
    rf"(?:{_ES_ORDERS}\W+{_ES_WHICH}|{_ES_WHICH}\W+{_ES_ORDERS})\b",
    r"\b(?:ignora(?:te|re)?|dimentica(?:te|re)?|trascura(?:te)?|non considerare)\W+(?:tutte(?:\W+(?:le"
    r"|queste))?(?:\W+tue)?"
    rf"|le tue){_near(1)}?{_IT_ORDERS}\b",
    rf"\b(?:ignora(?:te|re)?|dimentica(?:te|re)?)\W+(?:le |queste )?(?:{_IT_ORDERS}\W+{_IT_WHICH}"
    rf"|{_IT_WHICH}\W+{_IT_ORDERS})",
    r"\b(?:ignor[ae]m?|esque[çc]a|desconsider[ae]m?|descarte)\W+(?:todas(?:\W+(?:as|suas|essas))?|"
    r"(?:as )?suas|tuas)"
    rf"{_near(1)}?{_PT_ORDERS}\b",
    rf"\b(?:ignor[ae]m?|esque[çc]a|desconsider[ae]m?)\W+(?:d?as |essas )?(?:{_PT_ORDERS}\W+{_PT_WHICH}"
    rf"|{_PT_WHICH}\W+{_PT_ORDERS})\b",
    rf"\b(?:negeer|vergeet|omzeil|sla)\b{_near(2, 'niet')}{_NL_WHICH}{_near(2)}{_NL_ORDERS}\b",
    rf"(?<!не )\b(?:про)?игнорируй(?:те)?\b{_near(1)}{_RU_WHICH}{_near(2)}{_RU_ORDERS}",
    rf"(?<!не )\b(?:про)?игнорируй(?:те)?{_near(1)}{_RU_ORDERS} (?:выше|ранее)",
    rf"(?<!не )\b(?:забудь|отбрось|не обращай внимания на|не выполняй|не следуй)(?:те)?\b{_near(1)}"
    rf"{_RU_WHICH}{_near(2)}{_RU_ORDERS}",
    rf"(?<!不要)(?<!请勿)(?<!不可)(?<!不能)(?<!切勿)(?<!别)(?:忽略|无视|無視|忘记|忘記|忘掉|绕过|繞過|抛开)"
    rf"[^。；;\n]{{0,6}}{_ZH_WHICH}[^。；;\n]{{0,8}}{_ZH_ORDERS}",
    rf"不要(?:理会|理會|遵守|遵循|执行|執行)[^。；;\n]{{0,4}}{_ZH_WHICH}[^。；;\n]{{0,8}}{_ZH_ORDERS}",
    rf"{_JA_WHICH}[^。\n]{{0,12}}{_JA_ORDERS}[^。\n]{{0,6}}(?:無視(?!し(?:ない|ません|て(?:は|い))|せず"
    r"|でき)|忘れ(?!ない|ず|ません|て(?:は|い)))",
    rf"{_KO_WHICH}[^.\n]{{0,10}}{_KO_ORDERS}[^.\n]{{0,8}}(?:무시(?!하지|되|당)|잊어(?!버리지)|잊으"
    r"(?!시면|면)|따르지 ?마)",
    rf"(?<!لا )\b(?:تجاهل|تجاهلي|تجاهلوا|انس|إنس|انسى|أهمل)\b{_near(1)}?(?:جميع|كل|كافة){_near(2)}?"
    rf"(?:{_AR_ORDERS}|تعليماتك)",
    rf"(?<!لا )\b(?:تجاهل|تجاهلي|تجاهلوا|انس|إنس|انسى|أهمل)\W+(?:{_AR_ORDERS}\W+{_AR_WHICH}|تعليماتك)",
    rf"{_HI_WHICH}\S{{0,4}}[^।\n]{{0,16}}{_HI_ORDERS}\S{{0,4}}[^।\n]{{0,14}}"
    r"(?:अनदेखा कर|अनदेखी कर|नज\u093c?र ?अंदाज\u093c? कर|इग्नोर कर|(?<!न )(?<!मत )(?<!नहीं )भूल जा)",
)

PERSONA: Final = (
    r"\b(?:du bist|sie sind) (?:jetzt|nun|ab sofort|ab jetzt|von nun an|nicht (?:mehr"
    rf"|länger)){_near(4)}{_DE_READER}\b",
    r"\bab (?:jetzt|sofort) (?:bist|antwortest|handelst|wirst|sollst|musst) du\b",
    rf"\bab (?:jetzt|sofort) sind sie{_near(3)}{_DE_READER}\b",
    r"\b(?:tu|tue|verhalte dich|verhalten sie sich|antworte|handle) so,? als (?:ob (?:du|sie)|(?:wärs?t"
    r"|hättest|wären|hätten) )",
    rf"\b(?:tu es|vous êtes) (?:maintenant|désormais|à présent|dorénavant){_near(3)}{_FR_READER}",
    rf"\b(?:tu n'es|vous n'êtes) plus{_near(3)}{_FR_READER}",
    r"\b(?:à partir de maintenant|désormais|dorénavant),? tu (?:es|dois|réponds|répondras|agis|agiras"
    r"|seras|vas)\b",
    r"\b(?:à partir de maintenant|désormais|dorénavant),? vous (?:êtes|serez|agissez comme"
    rf"|répondez comme){_near(3)}{_FR_READER}",
    r"\b(?:fais|faites|agis|agissez|comporte-toi|comportez-vous|réponds|répondez) comme si (?:tu|vous)\b",
    rf"\b(?:ahora (?:eres|sos|es usted)|(?:eres|sos) ahora|ya no (?:eres|sos)){_near(3)}{_ES_READER}",
    r"\b(?:a partir de|desde) ahora,? (?:eres|sos|responder[áa]s|debes|actuar[áa]s|vas a|ser[áa]s"
    r"|act[úu]a|responde)\b",
    r"\b(?:finge|act[úu]a|comp[óo]rtate|responde) como si (?:fueras|fueses|tuvieras|no )",
    rf"\b(?:(?:ora|adesso) sei|sei (?:ora|adesso)|non sei più){_near(3)}{_IT_READER}",
    r"\b(?:da ora in poi|d'ora in poi|da adesso),? (?:sei|sarai|risponderai|devi|agirai|dovrai|rispondi)\b",
    r"\b(?:fingi di (?:essere|non)|(?:comportati|agisci|rispondi) come se)\b",
    rf"\b(?:agora (?:você é|tu és|és)|você agora é|você não é mais){_near(3)}{_PT_READER}",
    r"\b(?:a partir de|de) agora(?: em diante)?,? (?:(?:você|tu) )?(?:és|deves|vais|responderá"
    r"|responderás|agirá|agirás|serás|aja|responda)\b",
    rf"\ba partir de agora,? você (?:é|será){_near(3)}{_PT_READER}",
    r"\b(?:finja (?:ser|que)|(?:aja|responda|comporte-se) como se)\b",
    rf"\b(?:je|jij|u) bent (?:nu|voortaan|vanaf nu|niet (?:langer|meer)){_near(3)}{_NL_READER}\b",
    r"\bvanaf nu (?:ben|zul|antwoord|gedraag|handel) (?:je|jij)\b",
    r"\b(?:doe|gedraag je|antwoord|handel) alsof (?:je|jij|u)\b",
    rf"\b(?:ты|вы) (?:теперь|отныне|больше не){_near(3)}{_RU_READER}",
    rf"\b(?:теперь|отныне) (?:ты|вы){_near(3)}{_RU_READER}",
    r"\b(?:с этого момента|отныне|впредь|с данного момента),? ты (?:отвечаешь|будешь|должен|должна"
    r"|действуешь|являешься)\b",
    r"\b(?:притворись|веди себя|действуй|отвечай)(?:те)?,? (?:так,? )?(?:будто|как будто|словно"
    r"|как если бы|что ты)\b",
    r"(?:你现在是|你現在是|你现在已经是|你不再是|从现在(?:开始|起)[，,]?你|從現在(?:開始"
    rf"|起)[，,]?你)[^。\n]{{0,14}}{_ZH_READER}",
    r"(?:假装|假裝|扮演)[^。\n]{0,10}(?:[没沒]有|不受|[无無])[^。\n]{0,4}(?:限制|约束|約束)",
    rf"(?:あなた|君|お前)は(?:今|もう|これから|今から|いま|今後)[^。\n]{{0,20}}{_JA_READER}",
    rf"(?:今から|これから|以降|今後)、?(?:あなた|君|お前)は[^。\n]{{0,20}}(?:{_JA_READER}|として(?:答え"
    r"|回答|振る舞))",
    rf"(?:너는|넌|당신은) ?(?:이제|지금부터|더 이상)[^.\n]{{0,20}}{_KO_READER}",
    rf"(?:이제|지금)부터 (?:너는|넌|당신은)[^.\n]{{0,20}}(?:{_KO_READER}|답해|대답해|행동해)",
    rf"(?:أنت|انت) (?:الآن|الان|لم تعد){_near(3)}?{_AR_READER}",
    r"من (?:الآن|الان) فصاعدا?،? (?:أنت|انت|ستجيب|ستكون|سوف تجيب|أجب|تصرف)",
    r"\b(?:تظاهر|تصرف) (?:بأنك|بانك|كأنك|وكأنك|كما لو)",
    rf"(?:तुम|आप|तू) अब (?:से )?[^।\n]{{0,24}}{_HI_READER}",
    rf"अब से (?:तुम|आप|तू) [^।\n]{{0,24}}(?:{_HI_READER}|जवाब दो|जवाब दोगे|उत्तर दो)",
)

NEW_ORDERS: Final = (
    rf"\b(?:neue|geänderte|geheime|eigentliche) {_DE_ORDERS}\s*:|\bsystem-?\s?(?:prompt|anweisung\w*"
    r"|instruktion\w*)\s*:",
    r"\bdeine (?:neue|wahre|eigentliche|wirkliche) (?:aufgabe|rolle|anweisung) (?:ist|lautet)\b",
    r"\bnouvelles (?:instructions|consignes)(?: système)?\s*:|\b(?:prompt|invite|instructions?) "
    r"(?:du )?système\s*:",
    r"\b(?:ta|votre|ton) (?:nouvelle|nouveau|véritable|vraie?) (?:tâche|mission|rôle|objectif) (?:est"
    r"|consiste)\b",
    r"\bnuevas instrucciones(?: del sistema)?\s*:|\b(?:prompt|instrucciones) (?:del|de) sistema\s*:",
    r"\btu (?:nueva|nuevo|verdadera|verdadero|real) (?:tarea|misi[óo]n|funci[óo]n|objetivo|rol|papel) es\b",
    r"\bnuove istruzioni(?: di sistema)?\s*:|\b(?:prompt|istruzioni) di sistema\s*:",
    r"\b(?:il tuo (?:nuovo|vero)|la tua (?:nuova|vera)) (?:compito|ruolo|obiettivo|missione) è",
    r"\bnovas instru[çc][õo]es(?: do sistema)?\s*:|\b(?:prompt|instru[çc][õo]es) (?:do|de) sistema\s*:",
    r"\b(?:sua|tua|seu|teu) (?:nova|novo|verdadeira|verdadeiro) (?:tarefa|fun[çc][ãa]o|miss[ãa]o"
    r"|objetivo|papel) é",
    rf"\bnieuwe {_NL_ORDERS}\s*:|\bsysteem-?\s?(?:prompt|instructies?)\s*:",
    r"\b(?:je|jouw) (?:nieuwe|echte|werkelijke) (?:taak|rol|doel|opdracht) is\b",
    rf"\bновые (?:системные )?{_RU_ORDERS}\s*:|\bсистемн\w+ (?:промпт|инструкция|подсказка)\s*:",
    r"\bтво[йяё] (?:нов\w+|настоящ\w+|истинн\w+) (?:задача|роль|цель|миссия)\b",
    r"新的?(?:系统|系統)?(?:指令|指示)\s*[:：]|(?:系统|系統)(?:提示词|提示詞|指令)\s*[:：]",
    r"你的?(?:新|真正的?|实际的?|實際的?)(?:任务|任務|目标|目標|角色)是",
    r"(?:新しい|新たな)(?:システム)?(?:指示|命令)\s*[:：]|システム(?:プロンプト|指示)\s*[:：]",
    r"あなたの(?:新しい|本当の|真の)(?:任務|役割|タスク|目的|仕事)は",
    r"새(?:로운)? (?:시스템 )?(?:지시|지침|명령)(?:사항)?\s*[:：]|시스템 (?:프롬프트|지시)"
    r"(?:사항)?\s*[:：]",
    r"(?:너의|당신의|네) (?:새로운|진짜|진정한|실제) (?:임무|역할|목표|작업)[은는]",
    r"\b(?:تعليمات|أوامر|اوامر) (?:النظام )?(?:ال)?جديدة\s*[:：]|\b(?:موجه|تعليمات|مطالبة) النظام\s*[:：]",
    r"\b(?:مهمتك|دورك|هدفك) (?:ال)?(?:جديدة?|حقيقية?)\b",
    r"(?:नए|नये) (?:सिस्टम )?(?:निर्देश|आदेश)\s*[:：]|सिस्टम (?:प्रॉम्प्ट|निर्देश)\s*[:：]",
    r"(?:तुम्हारा|आपका|तुम्हारी|आपकी) (?:नया|नई|असली|वास्तविक) (?:कार्य|काम|उद्देश्य|भूमिका)",
)

SECRECY: Final = (
    r"\b(?:sag|sage|sagen|verrate|verraten|erzähle?)\b(?:\W+\w+){0,2}?\W+(?:dem|den) (?:be)?nutzern?\b"
    r"(?:\W+\w+){0,2}?\W+nichts?\b",
    r"\bohne (?:den|die) (?:be)?nutzer\w* zu (?:fragen|informieren|warnen)\b",
    r"\bne (?:le )?(?:dis|dites|révèle|révélez) (?:rien|pas)(?: \w+)? (?:à|au) l'utilisateur|\bsans "
    r"(?:en )?(?:informer|prévenir|avertir) l'utilisateur",
    r"\bno (?:le |se lo )?(?:digas|diga|cuentes|reveles)(?: nada)?(?: de esto)? al usuario|\bsin "
    r"(?:avisar|informar|preguntar) al usuario",
    r"\bnon (?:dire|dirlo|rivelare)(?: nulla| niente)? all'utente|\bsenza (?:avvisare|informare"
    r"|chiedere al) ?l'utente",
    r"\bnão (?:diga|conte|informe|revele)(?: nada)? (?:ao|o) usuário|\bsem (?:avisar|informar"
    r"|perguntar) (?:ao|o) usuário",
    r"\b(?:zeg|vertel) (?:dit |het )?(?:niets|niet) (?:tegen|aan) de gebruiker"
    r"|\bzonder de gebruiker te (?:vragen|informeren|waarschuwen)",
    r"\bне (?:говори|сообщай|рассказывай)(?:те)? (?:\w+ ){0,2}пользовател",
    r"(?:不要|别|別|切勿)(?:告诉|告訴|通知|告知)(?:用户|用戶|使用者)",
    r"ユーザーに(?:は)?(?:言わない|伝えない|教えない|知らせない)で",
    r"사용자에게 (?:절대 )?(?:말하지|알리지) ?(?:마|말)",
    r"\bلا تخبر(?:ي|وا)? المستخدم",
    r"(?:उपयोगकर्ता|यूज\u093c?र) को (?:कुछ )?(?:मत|न) बता",
)

SHAPES: Final[Mapping[str, tuple[str, ...]]] = {
    "override": OVERRIDE,
    "new_orders": NEW_ORDERS,
    "persona": PERSONA,
    "secrecy": SECRECY,
}

# A text is compared with the shapes of the scripts that it has letters of; what fits none of them is Latin.
SCRIPTS: Final = (
    "[\u0400-\u052f]",
    "[\u0600-\u06ff]",
    "[\u0900-\u097f]",
    "[\uac00-\ud7a3]",
    "[\u3040-\u30ff\u3400-\u9fff]",
)
# One of these is in whatever a Latin shape above fits.
HINTS: Final = (
    r"prompt|anweis|instru|istruz|vorgabe|regel|befehl|consigne|directive|règle|ordres|indicaci|indicazi"
    r"|[oó]rdenes|reglas|directric|regole"
    r"|direttiv|comand|orienta|regras|ordens|diretriz|aanwijz|opdracht|richtlijn|assist|asist|\bki\b|\bki-"
    r"|modèle"
    r"|\bia\b|admin|entwickler|développ|desarroll|svilupp|desenvolv|beheerder|ontwikkel|geschränkt|sans "
    r"|sin |senza |sem "
    r"|zonder|onbeperkt|ab jetzt|ab sofort|als ob|als w|als h|à partir|désormais|dorénavant|comme si|ahora"
    r"|como s[ei]\b|fing[ei]"
    r"|finja|ora in poi|da adesso|come se|agora|vanaf nu|alsof|aufgabe|rolle|tâche|mission|rôle|tarea|misi"
    r"|funci|rol |papel"
    r"|compito|ruolo|obiettivo|objeti|tarefa|miss|taak|doel|nutzer|utilisateur|usu[aá]rio|utente|gebruiker"
)
