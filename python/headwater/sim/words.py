"""Names and places that simulated records are made of."""

__all__ = ["FIRST_NAMES", "LAST_NAMES", "PLACES", "TITLES", "TOPICS", "VENUES", "WIKIS"]

PLACES = [  # city, country, state, latitude, longitude
    ("New York", "us", "NY", 40.75, -73.99),
    ("San Francisco", "us", "CA", 37.77, -122.41),
    ("Austin", "us", "TX", 30.27, -97.74),
    ("Toronto", "ca", "ON", 43.67, -79.38),
    ("Montréal", "ca", "QC", 45.54, -73.65),
    ("London", "gb", None, 51.52, -0.1),
    ("Dublin", "ie", None, 53.33, -6.25),
    ("Paris", "fr", None, 48.86, 2.34),
    ("München", "de", None, 48.14, 11.58),
    ("Zürich", "ch", None, 47.38, 8.54),
    ("Kraków", "pl", None, 50.06, 19.96),
    ("Málaga", "es", None, 36.72, -4.42),
    ("São Paulo", "br", None, -23.53, -46.63),
    ("Bogotá", "co", None, 4.63, -74.09),
    ("Bangalore", "in", None, 12.97, 77.56),
    ("東京", "jp", None, 35.67, 139.77),
    ("Sydney", "au", None, -33.87, 151.21),
]
FIRST_NAMES = [
    "Ana",
    "Bjørn",
    "Chloé",
    "Deepa",
    "Émile",
    "François",
    "Grace",
    "Jürgen",
    "Łukasz",
    "Мария",
    "Noor",
    "優子",
]
LAST_NAMES = [
    "Ångström",
    "Brown",
    "Çelik",
    "Díaz",
    "García",
    "Ivanova",
    "Müller",
    "Nowak",
    "O'Neill",
    "Rao",
    "佐藤",
]
TOPICS = [
    ("big-data", "Big Data"),
    ("hiking", "Hiking"),
    ("language", "Language & Culture"),
    ("opensource", "Open Source"),
    ("photo", "Photography"),
    ("softwaredev", "Software Development"),
    ("women-in-technology", "Women in Technology"),
    ("writing", "Writing/Reading"),
]
VENUES = [
    "Café Central",
    "Library / Room 2",
    "The Old Mill",
    'Coworking "Loft"',
    "Park, north gate",
    "Bibliothèque",
]
TITLES = [
    "Evening walk 🥾",
    "Hack night",
    "Apéro des développeurs",
    'Reading circle: "Ulysses"',
    "Streams & coffee ☕",
]
WIKIS = [  # domain, database
    ("en.wikipedia.org", "enwiki"),
    ("de.wikipedia.org", "dewiki"),
    ("fr.wikipedia.org", "frwiki"),
    ("ja.wikipedia.org", "jawiki"),
    ("commons.wikimedia.org", "commonswiki"),
    ("www.wikidata.org", "wikidatawiki"),
]
