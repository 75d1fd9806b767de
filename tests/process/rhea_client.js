// Sends 20 messages over amqp.server with rhea and receives them: node rhea_client.js PORT [USER]
const container = require(process.env.OMQ_RHEA + '/node_modules/rhea').create_container();
const count = 20;
let sent = 0, got = 0, accepted = 0;

function finish(context) {
    if (got === count && accepted === count) {
        console.log('all of them');
        context.connection.close();
    }
}

container.on('connection_open', context => {
    context.connection.open_receiver({source: 'A', credit_window: 5});
    context.connection.open_sender('A');
});
container.on('sendable', context => {
    while (context.sender.sendable() && sent < count) {
        sent++;
        context.sender.send({message_id: 'm' + sent, durable: true, body: {n: sent},
                             application_properties: {k: sent}});
    }
});
container.on('accepted', context => { accepted++; finish(context); });
container.on('message', context => {
    const message = context.message;
    got++;
    if (message.body.n !== got || message.message_id !== 'm' + got
            || message.application_properties.k !== got) {
        console.log('not as it was sent', JSON.stringify(message));
        process.exit(1);
    }
    finish(context);
});
container.on('disconnected', () => process.exit(2));
container.on('connection_close', () => process.exit(0));
container.connect({host: '127.0.0.1', port: parseInt(process.argv[2]), username: process.argv[3],
                   reconnect: false});
