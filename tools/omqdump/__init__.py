"""omqdump: look into the queues, from a menu or a script.

    main     command line              session    menu, batch, one option after the other
    options  one table of letters      prompts    lines and words that answer an option's questions
    walk_options, change_options       the options that show one message, and those that change some
    message_files  messages as files   option_desk  what an option works with
    render   tables and JSON           sources    the facts: index, poolctrl, pool files
                                       text_file  text dumps on disk

The letters and their output are those of the original's tool of this name.
"""
