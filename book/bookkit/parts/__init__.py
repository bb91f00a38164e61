"""What a book knows of its parts, and the furniture of a new one: `python -m bookkit new-part NAME`.

words.py        texts with <<words>> in them, and the words that belong to a part
rooms.py        every file that a part has, and every list that must know it
writing.py      all files or none
command.py      the command
templates/      the files of a part, with <<words>>: a true and tiny example, to be overwritten
"""
