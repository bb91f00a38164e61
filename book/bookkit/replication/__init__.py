"""Would the verdicts come out the same? Claims are registered before they are judged, then judged at seeds that nobody has chosen.

seeds         a public rule that names the seeds, from the release's number
registration  what a claim's judge was when it was written down, with its date and why it changed since
counts        what became of each claim at those seeds, and the committed table of it
command       `replicate` and `register`
"""
